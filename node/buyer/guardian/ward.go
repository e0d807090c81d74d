package guardian

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
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
	return w.Job == o.Job && w.Owner == o.Owner && w.Buyer == o.Buyer && w.Keys.Hash() == o.Keys.Hash() && w.Until.Equal(o.Until) &&
		bytes.Equal(w.File, o.File) && sameFiles(w.Files, o.Files) &&
		slices.EqualFunc(w.Members, o.Members, func(a, b Member) bool {
			return a.Key == b.Key && (a.Wage == nil) == (b.Wage == nil) && (a.Wage == nil || *a.Wage == *b.Wage)
		})
}

// checkWages checks that the guardians' wages are of the job.
func (w Ward) checkWages() error {
	for _, m := range w.Members {
		if c := m.Wage; c != nil && (c.Provider != m.Key || c.Buyer != w.Buyer || c.Terms != w.Job || c.VoucherKeys != w.Keys.Hash() || c.Successor()) {
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
		return refuse(CodeSuperseded, "the job is supervised under epoch %d by %s", w.Epoch, w.Supervisor(w.Epoch).Short())
	case epoch > w.Epoch || from != w.Supervisor(w.Epoch):
		return refuse(CodeNotYours, "the job is supervised by %s under epoch %d", w.Supervisor(w.Epoch).Short(), w.Epoch)
	}
	return nil
}

// MayGrant asks whether the guardian signs that from supervises under the epoch. The owner may always; a fellow guardian when
// the present supervisor failed. Nothing about it needs to be remembered: under one epoch no two peers can ask, and a
// guardian goes on to obey the highest epoch that a majority granted.
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

// newer reports whether a replaces o: the later receipt, which its provider signed; then the word of the later supervisor; then
// the later voucher, the further state.
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
	if last := payer.Last(); last.Seq > 0 && (known == nil || known.payer.Last() != last || known.payer.LastSig() != payer.LastSig()) {
		if err := c.checkLast(d, core, payer); err != nil {
			return kept{}, err
		}
	}
	return k, nil
}

func (c Charter) terms(g market.Genesis, l Lease, epoch uint64) meter.Terms {
	return protocol.MeterTerms(g, l.Signed.Core, c.Keys, l.Escrow, market.Resources{MilliCPU: l.MilliCPU}, epoch)
}

// checkLast holds the last receipt to the lease: it says from when it is billed, and its provider signed it.
func (c Charter) checkLast(d sign.Domain, core market.LeaseCore, payer meter.Payer) error {
	last, began := payer.Last(), payer.Began()
	owed, err := core.Rate.Owed(uint64(last.To - began))
	switch {
	case err != nil || last.To < began || owed != last.Cumulative:
		return refuse(CodeVoucher, "receipt %d of lease %s says %d for slots %d to %d", last.Seq, core.ID().Short(), last.Cumulative, began, last.To)
	case began < core.Start || began > core.ActivateBefore:
		return refuse(CodeVoucher, "lease %s began in slot %d, allowed is %d to %d", core.ID().Short(), began, core.Start, core.ActivateBefore)
	case last.Provider != core.Provider || last.Buyer != core.Buyer || last.Units != core.Units || last.UnitsRoot != core.UnitsRoot || last.RankEpoch != core.RankEpoch ||
		last.Cumulative > core.Cap:
		return refuse(CodeVoucher, "receipt %d of lease %s is of another lease", last.Seq, core.ID().Short())
	}
	if err := last.VerifyBy(d, core.Provider, payer.LastSig()); err != nil {
		return refuse(CodeVoucher, "receipt %d of lease %s: %v", last.Seq, core.ID().Short(), err)
	}
	return nil
}

// checkVoucher checks that a voucher may be signed in slot now: within the cap and the lease, not more than an interval
// beyond the provider's receipts, and those not later than now.
func (c Charter) checkVoucher(g market.Genesis, now market.Slot, k kept) (verify.Voucher, error) {
	core, v := k.Signed.Core, k.payer.Voucher()
	id := core.ID().Short()
	if v == nil {
		return verify.Voucher{}, malformed("lease %s has no voucher", id)
	}
	t := c.terms(g, k.Lease, k.Epoch)
	skew := 2 * t.SkewSlots
	last, began := k.payer.Last(), k.payer.Began()
	until := began // paid so far by receipts
	if last.Seq > 0 {
		until = last.To
	}
	if began < core.Start || began > core.ActivateBefore {
		return *v, refuse(CodeVoucher, "lease %s began in slot %d, allowed is %d to %d", id, began, core.Start, core.ActivateBefore)
	}
	if until > after(now, skew) {
		return *v, refuse(CodeVoucher, "lease %s is at slot %d, it is %d", id, until, now)
	}
	slots := uint64(min(after(until, t.IntervalSlots), core.End) - began)
	most, err := core.Rate.Owed(slots)
	if err != nil {
		return *v, refuse(CodeVoucher, "lease %s: %v", id, err)
	}
	most = min(most, core.Cap)
	switch {
	case v.Version != verify.VoucherVersion || v.Flags&^verify.VoucherFinal != 0 || v.Seq == 0 || v.Lease != core.ID() || v.Escrow != k.Escrow:
		return *v, refuse(CodeVoucher, "the voucher of lease %s is not of this lease", id)
	case v.Supervision > k.Epoch:
		return *v, refuse(CodeVoucher, "the voucher of lease %s is of epoch %d, granted is %d", id, v.Supervision, k.Epoch)
	case v.Cumulative > most:
		return *v, refuse(CodeVoucher, "the voucher of lease %s is for %d, in slot %d it can be %d", id, v.Cumulative, now, most)
	case v.Horizon > min(after(until, t.IntervalSlots+skew), core.End):
		return *v, refuse(CodeVoucher, "the voucher of lease %s pays until slot %d, it is %d", id, v.Horizon, now)
	case v.Final() != (last.Seq > 0 && last.Final()) || v.Final() && v.Cumulative != last.Cumulative:
		return *v, refuse(CodeVoucher, "the voucher of lease %s is final, or is not, against its receipts", id)
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

// starved reports whether a lease's voucher is overdue: the supervisor neither paid on nor said that it stopped, for longer
// after the payer's machine would have.
func (k kept) starved(now market.Slot, silent uint64) bool {
	return k.payer.State() == meter.PayerPaying && now > after(k.payer.Wake(), silent)
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
	var slots uint64
	if end := min(now, core.End); end > core.Start {
		slots = uint64(end - core.Start)
	}
	most, err := core.Rate.Owed(slots)
	switch {
	case err != nil:
		return refuse(CodeVoucher, "%v", err)
	case v.Version != verify.VoucherVersion || v.Flags != 0 || v.Seq == 0 || v.Lease != core.ID() || v.Escrow.IsZero() != g.Program.IsZero() || v.Supervision > w.Epoch:
		return refuse(CodeVoucher, "the voucher is not of the wage")
	case v.Cumulative > min(most, core.Cap) || v.Horizon > max(min(now, core.End), core.Start):
		return refuse(CodeVoucher, "the voucher is for %d until slot %d, earned are %d in slot %d", v.Cumulative, v.Horizon, min(most, core.Cap), now)
	}
	return nil
}

// Witness asks whether this guardian, self, signs a transaction that payer pays for: one that opens an escrow of the job for these
// guardians, or hires a standby from such an escrow, and in which self does nothing else. It gives the escrows that are opened.
func (w Ward) Witness(g market.Genesis, self, payer sign.Key, in []program.Instruction) ([]sign.Key, error) {
	if g.Program.IsZero() {
		return nil, refuse(CodeWitness, "the network has no escrows")
	}
	asked, err := escrow.Consider(escrow.Net{Program: g.Program}, self, payer, in)
	if err != nil {
		return nil, refuse(CodeWitness, "%v", err)
	}
	for _, x := range in {
		if x.Program == self || slices.ContainsFunc(x.Accounts, func(m program.Meta) bool { return m.Key == self && m.Writable }) {
			return nil, refuse(CodeWitness, "a guardian's account changes in no transaction of a job")
		}
	}
	var opened []sign.Key
	for _, c := range asked.Opens {
		switch {
		case c.Buyer != w.Owner || c.Network != g.Escrow || c.Mint != g.Mint || c.Keys.Threshold != w.Keys.Threshold || !slices.Equal(c.Keys.Keys, w.Keys.Keys):
			return nil, refuse(CodeWitness, "escrow %s is of another job, or paid by others", c.Escrow.Short())
		case c.Escrow != program.EscrowAddress(g.Program, g.Escrow, c.Buyer, sign.Hash(c.Order), c.Opened):
			return nil, refuse(CodeWitness, "escrow %s is at another address", c.Escrow.Short())
		case !slices.Contains(w.Escrows, c.Escrow) && !slices.Contains(opened, c.Escrow):
			opened = append(opened, c.Escrow)
		}
	}
	for _, c := range asked.Hires {
		if !slices.Contains(w.Escrows, c.Escrow) && !slices.Contains(opened, c.Escrow) {
			return nil, refuse(CodeWitness, "escrow %s is none of the job's", c.Escrow.Short())
		}
	}
	switch {
	case len(asked.Retires) > 0: // a supervisor has the job's key for that
		return nil, refuse(CodeWitness, "a guardian retires nothing")
	case len(w.Escrows)+len(opened) > maxEscrows:
		return nil, refuse(CodeFull, "the job has %d escrows", len(w.Escrows))
	}
	return opened, nil
}

// after is s + n, or the last slot there is.
func after(s market.Slot, n uint64) market.Slot {
	if sum := s + market.Slot(n); sum >= s {
		return sum
	}
	return ^market.Slot(0)
}

// restore is the payer of a lease.
func restore(g market.Genesis, c Charter, l Lease) (meter.Payer, error) {
	return meter.RestorePayer(c.terms(g, l, 0), l.Payer)
}
