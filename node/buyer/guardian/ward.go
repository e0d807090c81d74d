package guardian

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian/rules"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Ward is a job that this peer guards, beside its state and its leases: the engagement, and the supervisor. Its methods
// are the guardian's rules. Values are immutable; another Ward that a method returns must be journalled before its
// effects leave the peer.
type Ward struct {
	Charter
	Members []Member  `json:"members"` // in the order of Charter.Keys
	Sealed  []byte    `json:"sealed"`  // the job's key, for this peer only
	File    []byte    `json:"file"`
	Files   []File    `json:"files,omitempty"`
	Addrs   []string  `json:"addrs,omitempty"` // of the owner
	Until   time.Time `json:"until"`
	// From is the network that the owner engaged from; not valid: none is known.
	From netip.Prefix `json:"from,omitzero"`

	// Unbacked is since when this guardian's wage is waited for on chain; zero once it is there, or if it has none.
	Unbacked  time.Time   `json:"unbacked,omitzero"`
	Ready     bool        `json:"ready,omitempty"` // all files are here
	Epoch     uint64      `json:"epoch"`           // newest that is known to be granted
	Grant     []byte      `json:"grant,omitempty"` // of it
	Escrows   []sign.Key  `json:"escrows,omitempty"`
	Over      bool        `json:"over,omitempty"`
	OverAt    market.Slot `json:"over_at,omitempty"` // when this guardian first heard that it is over
	Dismissed bool        `json:"dismissed,omitempty"`
}

// same reports whether two wards were engaged for the same. A box differs each time that it is sealed.
func (w Ward) same(o Ward) bool {
	return w.Job == o.Job && w.Owner == o.Owner && w.Buyer == o.Buyer && w.Keys.Hash() == o.Keys.Hash() &&
		w.Until.Equal(o.Until) && bytes.Equal(w.File, o.File) && sameFiles(w.Files, o.Files) &&
		slices.EqualFunc(w.Members, o.Members, func(a, b Member) bool {
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

// Learn takes in a proof that the job is supervised under an epoch. It is ignored if a higher one is known.
func (w Ward) Learn(d sign.Domain, epoch uint64, grant []byte) (next Ward, changed bool, err error) {
	if epoch <= w.Epoch {
		return w, false, nil
	}
	if err := w.CheckGrant(d, epoch, grant); err != nil {
		return w, false, refuse(CodeGrant, "epoch %d was not granted: %v", epoch, err)
	}
	w.Epoch, w.Grant = epoch, bytes.Clone(grant)
	return w, true, nil
}

// Commands asks whether from supervises the job under the epoch, as far as this guardian knows.
func (w Ward) Commands(from sign.Key, epoch uint64) error {
	switch {
	case w.Dismissed:
		return refuse(CodeOver, "the job was dismissed")
	case epoch < w.Epoch:
		return refuse(CodeSuperseded, "the job is supervised under epoch %d by %s",
			w.Epoch, w.Supervisor(w.Epoch).Short())
	case epoch > w.Epoch || from != w.Supervisor(w.Epoch):
		return refuse(CodeNotYours, "the job is supervised by %s under epoch %d",
			w.Supervisor(w.Epoch).Short(), w.Epoch)
	}
	return nil
}

// MayGrant asks whether the guardian signs that from supervises under the epoch. The owner may always; a fellow
// guardian when the present supervisor failed. Nothing about it needs to be remembered: under one epoch no two peers
// can ask, and a guardian goes on to obey the highest epoch that a majority granted.
func (w Ward) MayGrant(from sign.Key, epoch uint64, failed bool) error {
	switch {
	case w.Dismissed:
		return refuse(CodeOver, "the job was dismissed")
	case epoch <= w.Epoch:
		return refuse(CodeSuperseded, "epoch %d is granted", w.Epoch)
	case epoch > w.Epoch+maxAhead || w.Supervisor(epoch) != from:
		return refuse(CodeGrant, "after epoch %d, epoch %d is not for %s to ask for", w.Epoch, epoch, from.Short())
	case from == w.Owner:
		return nil
	case w.Over:
		return refuse(CodeOver, "nobody has to supervise the job any more")
	case !failed:
		return refuse(CodeAlive, "%s supervises the job", w.Supervisor(w.Epoch).Short())
	}
	return nil
}

// kept is a lease as a guardian has it.
type kept struct {
	Lease
	Word
	payer meter.Payer
}

// newer reports whether a replaces o: the later receipt, which its provider signed; then the word of the later
// supervisor; then the later voucher, the further state.
func (k kept) newer(o *kept) bool {
	if o == nil {
		return true
	}
	states := []meter.PayerState{meter.PayerIdle, meter.PayerPaying, meter.PayerStopping, meter.PayerSettled}
	seq := func(k *kept) uint64 {
		if v := k.payer.Voucher(); v != nil {
			return v.Seq
		}
		return 0
	}
	for _, at := range [][2]uint64{
		{k.payer.Last().Seq, o.payer.Last().Seq}, {k.Epoch, o.Epoch}, {seq(&k), seq(o)},
		{uint64(slices.Index(states, k.payer.State())), uint64(slices.Index(states, o.payer.State()))},
	} {
		if at[0] != at[1] {
			return at[0] > at[1]
		}
	}
	return false
}

// readLease checks that a lease is of its job: signed by the job's key and its provider, for these terms, paid by these
// guardians, and with a payer that its machine could have come to. known is the earlier record of it, nil if there is
// none.
func (c Charter) readLease(g market.Genesis, l Lease, w Word, known *kept) (kept, error) {
	core, d := l.Signed.Core, g.Domain()
	switch {
	case core.Buyer != c.Buyer || core.Terms != c.Job || core.VoucherKeys != c.Keys.Hash():
		return kept{}, refuse(CodeVoucher, "lease %s is of another job", core.ID().Short())
	case known != nil && known.Signed == l.Signed && (known.Escrow != l.Escrow || known.MilliCPU != l.MilliCPU):
		return kept{}, refuse(CodeVoucher, "lease %s is paid from another escrow than it was", core.ID().Short())
	case known == nil || known.Signed != l.Signed:
		if err := l.Signed.Check(d); err != nil {
			return kept{}, refuse(CodeVoucher, "lease %s: %v", core.ID().Short(), err)
		}
	}
	payer, err := meter.RestorePayer(c.terms(g, l, w.Epoch), l.Payer)
	if err != nil {
		return kept{}, refuse(CodeVoucher, "lease %s: %v", core.ID().Short(), err)
	}
	k := kept{Lease: l, Word: w, payer: payer}
	checked := known != nil && known.payer.Last() == payer.Last() && known.payer.LastSig() == payer.LastSig()
	if payer.Last().Seq > 0 && !checked {
		if err := rules.Last(d, core, payer); err != nil {
			return kept{}, refuse(CodeVoucher, "%v", err)
		}
	}
	return k, nil
}

func (c Charter) terms(g market.Genesis, l Lease, epoch uint64) meter.Terms {
	return protocol.MeterTerms(g, l.Signed.Core, c.Keys, l.Escrow, market.Resources{MilliCPU: l.MilliCPU}, epoch)
}

// checkVoucher checks that a lease's voucher may be signed in slot now.
func (c Charter) checkVoucher(g market.Genesis, now market.Slot, k kept) (verify.Voucher, error) {
	v := k.payer.Voucher()
	if v == nil {
		return verify.Voucher{}, malformed("lease %s has no voucher", k.ID().Short())
	}
	if err := rules.Voucher(c.terms(g, k.Lease, k.Epoch), now, k.payer); err != nil {
		return *v, refuse(CodeVoucher, "%v", err)
	}
	return *v, nil
}

// follows asks whether k may be kept after o: nothing goes back, and nothing is said twice in two ways.
func (k kept) follows(o *kept) error {
	if o == nil {
		return nil
	}
	id := k.ID().Short()
	v, before := k.payer.Voucher(), o.payer.Voucher()
	switch {
	case before.Final() && *v != *before:
		return refuse(CodeVoucher, "lease %s has its final voucher", id)
	case o.newer(&k):
		return refuse(CodeVoucher, "lease %s stands at receipt %d and voucher %d", id, o.payer.Last().Seq, before.Seq)
	case v.Seq == before.Seq && *v != *before && v.Supervision <= before.Supervision:
		return refuse(CodeVoucher, "voucher %d of lease %s was another one", v.Seq, id)
	}
	return nil
}

// starved reports whether a lease's voucher is overdue: the supervisor neither paid on nor said that it stopped, for
// longer after the payer's machine would have.
func (k kept) starved(now market.Slot, silent uint64) bool {
	return k.payer.State() == meter.PayerPaying && now > rules.After(k.payer.Wake(), silent)
}

// WageOf is a guardian's wage; nil: it has none, or is none.
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
		return refuse(CodeVoucher, "nothing was said to be paid")
	}
	if w.OverAt > 0 {
		now = min(now, w.OverAt)
	}
	if err := rules.Wage(*core, now, g.Program.IsZero(), w.Epoch, v); err != nil {
		return refuse(CodeVoucher, "%v", err)
	}
	return nil
}

// Witness asks whether this guardian, self, signs a transaction that payer pays for: one that opens an escrow of the
// job for these guardians, or hires a standby from such an escrow, and in which self does nothing else. It gives the
// escrows that are opened.
func (w Ward) Witness(g market.Genesis, self, payer sign.Key, in []program.Instruction) ([]sign.Key, error) {
	job := rules.Job{Owner: w.Owner, Keys: w.Keys, Escrows: w.Escrows}
	opened, err := job.Transaction(g, self, payer, in)
	if err != nil {
		return nil, refuse(CodeWitness, "%v", err)
	}
	if len(w.Escrows)+len(opened) > maxEscrows {
		return nil, refuse(CodeFull, "the job has %d escrows", len(w.Escrows))
	}
	return opened, nil
}

// restore is the payer of a lease.
func restore(g market.Genesis, c Charter, l Lease) (meter.Payer, error) {
	return meter.RestorePayer(c.terms(g, l, 0), l.Payer)
}
