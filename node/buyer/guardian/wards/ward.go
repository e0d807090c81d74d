package wards

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/verify"
)

// Bounds of one ward.
const (
	maxKept    = 32 << 20 // bytes of records and payers
	maxEscrows = 256
	maxAhead   = 1024    // epochs
	pageBytes  = 2 << 20 // of leases, or receipts, in one answer
)

// Ward is a job that this peer guards, beside its state and its leases: the engagement, and the supervisor. Its methods
// are the guardian's rules. Values are immutable; another Ward that a method returns must be journalled before its
// effects leave the peer.
type Ward struct {
	guardian.Charter
	Members []guardian.Member `json:"members"` // in the order of Charter.Keys
	Sealed  []byte            `json:"sealed"`  // the job's key, for this peer only
	File    []byte            `json:"file"`
	Files   []guardian.File   `json:"files,omitempty"`
	Addrs   []string          `json:"addrs,omitempty"` // of the owner
	Until   time.Time         `json:"until"`
	// From is the network that the owner engaged from; not valid: none is known.
	From netip.Prefix `json:"from,omitzero"`

	// Unbacked is the start of the wait for this guardian's wage on chain; zero once it is on chain, or if there is
	// none.
	Unbacked  time.Time   `json:"unbacked,omitzero"`
	Ready     bool        `json:"ready,omitempty"` // all files are stored
	Epoch     uint64      `json:"epoch"`           // newest that is known to be granted
	Grant     []byte      `json:"grant,omitempty"` // of it
	Escrows   []sign.Key  `json:"escrows,omitempty"`
	Over      bool        `json:"over,omitempty"`
	OverAt    market.Slot `json:"over_at,omitempty"` // slot in which this guardian first received Over
	Dismissed bool        `json:"dismissed,omitempty"`
}

// same reports whether two wards were engaged for the same. A box differs each time that it is sealed.
func (w Ward) same(o Ward) bool {
	return w.Job == o.Job && w.Owner == o.Owner && w.Buyer == o.Buyer && w.Keys.Hash() == o.Keys.Hash() &&
		w.Until.Equal(o.Until) && bytes.Equal(w.File, o.File) && guardian.SameFiles(w.Files, o.Files) &&
		slices.EqualFunc(w.Members, o.Members, func(a, b guardian.Member) bool {
			return a.Key == b.Key && (a.Wage == nil) == (b.Wage == nil) && (a.Wage == nil || *a.Wage == *b.Wage)
		})
}

// checkWages checks that the guardians' wages are of the job.
func (w Ward) checkWages() error {
	for _, m := range w.Members {
		if c := m.Wage; c != nil && (c.Provider != m.Key || c.Buyer != w.Buyer || c.Terms != w.Job ||
			c.VoucherKeys != w.Keys.Hash() || c.Successor()) {
			return malformed("the wage of guardian %s is of another job", m.Key.Short())
		}
	}
	return nil
}

// Learn applies a proof that the job is supervised under an epoch. A lower epoch than the known one is ignored.
func (w Ward) Learn(d sign.Domain, epoch uint64, grant []byte) (next Ward, changed bool, err error) {
	if epoch <= w.Epoch {
		return w, false, nil
	}
	if err := w.CheckGrant(d, epoch, grant); err != nil {
		return w, false, guardian.Refuse(guardian.CodeGrant, "epoch %d was not granted: %v", epoch, err)
	}
	w.Epoch, w.Grant = epoch, bytes.Clone(grant)
	return w, true, nil
}

// Commands returns nil if from supervises the job under the epoch, as far as this guardian knows.
func (w Ward) Commands(from sign.Key, epoch uint64) error {
	switch {
	case w.Dismissed:
		return guardian.Refuse(guardian.CodeOver, "the job was dismissed")
	case epoch < w.Epoch:
		return guardian.Refuse(guardian.CodeSuperseded, "the job is supervised under epoch %d by %s",
			w.Epoch, w.Supervisor(w.Epoch).Short())
	case epoch > w.Epoch || from != w.Supervisor(w.Epoch):
		return guardian.Refuse(guardian.CodeNotYours, "the job is supervised by %s under epoch %d",
			w.Supervisor(w.Epoch).Short(), w.Epoch)
	}
	return nil
}

// MayGrant returns nil if the guardian may sign that from supervises under the epoch. The owner always may; another
// guardian may if the present supervisor failed. A grant needs no record: one epoch has one possible supervisor, and
// guardians obey the highest epoch that a majority granted.
func (w Ward) MayGrant(from sign.Key, epoch uint64, failed bool) error {
	switch {
	case w.Dismissed:
		return guardian.Refuse(guardian.CodeOver, "the job was dismissed")
	case epoch <= w.Epoch:
		return guardian.Refuse(guardian.CodeSuperseded, "epoch %d is granted", w.Epoch)
	case epoch > w.Epoch+maxAhead || w.Supervisor(epoch) != from:
		return guardian.Refuse(guardian.CodeGrant, "after epoch %d, epoch %d is not for %s",
			w.Epoch, epoch, from.Short())
	case from == w.Owner:
		return nil
	case w.Over:
		return guardian.Refuse(guardian.CodeOver, "the job needs no supervision: its work has ended")
	case !failed:
		return guardian.Refuse(guardian.CodeAlive, "%s supervises the job", w.Supervisor(w.Epoch).Short())
	}
	return nil
}

// WageOf returns a guardian's wage; nil if it has none or is not a guardian.
func (w Ward) WageOf(k sign.Key) *market.LeaseCore {
	if i := slices.Index(w.Keys.Keys, k); i >= 0 {
		return w.Members[i].Wage
	}
	return nil
}

// Wage checks that a fellow guardian has earned a voucher's amount in slot now: the rate, for the time since its
// engagement until the job's end.
func (w Ward) Wage(g market.Genesis, now market.Slot, from sign.Key, v verify.Voucher) error {
	core := w.WageOf(from)
	if core == nil {
		return guardian.Refuse(guardian.CodeVoucher, "the sender has no wage")
	}
	if w.OverAt > 0 {
		now = min(now, w.OverAt)
	}
	if err := earned(*core, now, g.Program.IsZero(), w.Epoch, v); err != nil {
		return guardian.Refuse(guardian.CodeVoucher, "%v", err)
	}
	return nil
}

// earned checks that a guardian has earned a voucher's amount by slot now, or by the job's end: the rate of its wage,
// for the time since its engagement. On a free network vouchers name no escrow. epoch is the highest that a majority
// granted.
func earned(core market.LeaseCore, now market.Slot, free bool, epoch uint64, v verify.Voucher) error {
	var slots uint64
	if end := min(now, core.End); end > core.Start {
		slots = uint64(end - core.Start)
	}
	most, err := core.Rate.Owed(slots)
	switch {
	case err != nil:
		return err
	case v.Version != verify.VoucherVersion || v.Flags != 0 || v.Seq == 0 || v.Lease != core.ID() ||
		v.Escrow.IsZero() != free || v.Supervision > epoch:
		return errors.New("the voucher is not of the wage")
	case v.Cumulative > min(most, core.Cap) || v.Horizon > max(min(now, core.End), core.Start):
		return fmt.Errorf("the voucher is for %d until slot %d, earned are %d in slot %d",
			v.Cumulative, v.Horizon, min(most, core.Cap), now)
	}
	return nil
}

// Witness checks a transaction that a supervisor has this guardian, self, sign: see payments. It returns the ward with
// the escrows that the transaction opens; changed is false if it opens none that are new.
func (w Ward) Witness(g market.Genesis, self sign.Key, message []byte) (next Ward, changed bool, err error) {
	// If it were a preimage (market/sign), it would be of at least 115 signers, which fit none.
	payer, in, err := transaction.ParseMessage(message)
	if err != nil {
		return w, false, malformed("%v", err)
	}
	job := payments{owner: w.Owner, keys: w.Keys, escrows: w.Escrows}
	opened, err := job.check(g, self, payer, in)
	if err != nil {
		return w, false, guardian.Refuse(guardian.CodeWitness, "%v", err)
	}
	if len(w.Escrows)+len(opened) > maxEscrows {
		return w, false, guardian.Refuse(guardian.CodeFull, "the job has %d escrows", len(w.Escrows))
	}
	w.Escrows = slices.Concat(w.Escrows, opened)
	return w, len(opened) > 0, nil
}

// addrs are the addresses of a peer that has a part in the job.
func (w Ward) addrs(k sign.Key) []string {
	if i := slices.Index(w.Keys.Keys, k); i >= 0 {
		return w.Members[i].Addrs
	}
	return w.Addrs
}

// closed is the ward after its dismissal: its data goes, the wages of its guardians stay.
func (w Ward) closed(now market.Slot) Ward {
	w.Dismissed, w.Sealed, w.File, w.Files, w.Escrows = true, nil, nil, nil, nil
	if w.OverAt == 0 {
		w.OverAt = now
	}
	return w
}
