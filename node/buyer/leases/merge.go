package leases

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Handed is a lease of a job with guardians as its last supervisor left it. Only the lease itself is checked.
type Handed struct {
	Signed market.Lease
	Escrow sign.Key
	Record []byte // Record as JSON
	Payer  []byte // meter.Payer.Marshal
}

// version is one side's state of a lease.
type version struct {
	rec   Record
	payer []byte
}

// Merge returns the leases of a job that this peer takes over, under the present epoch of its principal: each in the
// later of two states, this peer's or the last supervisor's. It leaves out, and logs, leases that cannot be read. The
// caller journals the result with Takeover, adds it with Replace, and calls Resume.
func (b *Book) Merge(
	job string, as Principal, keys market.KeySet, mine []*Lease, handed []Handed,
) ([]*Lease, error) {
	best := map[market.LeaseID]version{}
	for _, l := range mine {
		l.mu.Lock()
		state, err := l.payer.Marshal()
		best[l.ID] = version{l.rec, state}
		l.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	for _, h := range handed {
		id := h.Signed.Core.ID()
		rec, err := b.checked(h)
		rec.Job, rec.Lease, rec.Keys, rec.Escrow = job, h.Signed.Marshal(), keys.Marshal(), h.Escrow
		var l *Lease
		if err == nil {
			l, err = b.rebuild(rec, h.Payer, keys, as)
		}
		if err != nil { // the others are worth as much as before
			b.cfg.Log.Warn("a lease as a job's guardians keep it is of no use", "job", job, "lease", id, "err", err)
			continue
		}
		if old, ok := best[id]; !ok || later(l.terms(), h.Payer, old.payer) {
			best[id] = version{rec, h.Payer}
		}
	}
	var out []*Lease
	for id, v := range best {
		if root := v.rec.Root; !root.IsZero() {
			if first, ok := best[root]; !ok || !first.rec.Root.IsZero() {
				b.cfg.Log.Warn("a lease as a job's guardians keep it follows an unknown one", "job", job, "lease", id,
					"first", root)
				continue
			}
		}
		l, err := b.rebuild(v.rec, v.payer, keys, as)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, b.Link(out)
}

// later reports whether the first of two states of a payer is the later one. A state that cannot be read is not.
func later(t meter.Terms, x, y []byte) bool {
	p, err := meter.RestorePayer(t, x)
	q, no := meter.RestorePayer(t, y)
	if err != nil || no != nil {
		return err == nil
	}
	return compare(p, q) > 0
}

// compare orders two states of one lease as guardians do: by the last receipt, which its provider signed; then by the
// epoch of the voucher's supervisor; then by the voucher. Guardians sign no voucher of an earlier supervisor after a
// later one's.
func compare(x, y meter.Payer) int {
	v, w := cmp.Or(x.Voucher(), &verify.Voucher{}), cmp.Or(y.Voucher(), &verify.Voucher{})
	return cmp.Or(
		cmp.Compare(x.Last().Seq, y.Last().Seq), cmp.Compare(v.Supervision, w.Supervision), cmp.Compare(v.Seq, w.Seq))
}

var (
	errUnits  = errors.New("the units differ from the signed units")
	errMember = errors.New("the place in the cluster differs from the chain's first lease")
)

// checked reads another supervisor's record of a lease.
func (b *Book) checked(h Handed) (Record, error) {
	var rec Record
	if err := json.Unmarshal(h.Record, &rec); err != nil {
		return rec, err
	}
	units, err := market.SortUnits(rec.Units)
	if err != nil || market.UnitsRoot(units) != h.Signed.Core.UnitsRoot {
		return rec, errUnits
	}
	if m := rec.Member; m != nil {
		first, err := market.UnmarshalLease(m.Lease)
		if err == nil {
			err = market.CheckMember(b.domain, first, m.Hold, m.Key)
		}
		if err != nil {
			return rec, errors.Join(errMember, err)
		}
		if id := first.Core.ID(); id != h.Signed.Core.ID() && id != rec.Root {
			return rec, errMember
		}
	}
	if v, err := verify.UnmarshalSignedVoucher(rec.Voucher); err != nil || v.Check(b.domain, h.Signed.Core) != nil {
		rec.Voucher = nil // the guardians sign it again
	}
	rec.Units, rec.Reason = units, market.Clean(rec.Reason, maxReason)
	rec.Route = market.Clean(rec.Route, maxReason)
	return rec, nil
}

// Takeover returns the writes of a merged lease for the journal.
func (l *Lease) Takeover() ([]store.Put, error) {
	rec, err := l.Put(func(r *Record) {
		if l.payer.State() == meter.PayerPaying {
			r.Active = true // the first voucher was sent to its provider
		}
	})
	if err != nil {
		return nil, err
	}
	state, err := l.Payer().Marshal()
	if err != nil {
		return nil, err
	}
	payer, err := Payers.Encode(l.ID, state)
	return []store.Put{rec, payer}, err
}

// Resume has a merged lease that is in the book paid on, or closes it if it is settled.
func (b *Book) Resume(l *Lease) {
	if l.Done() {
		close(l.settled)
	} else {
		b.Watch(l)
	}
	if l.First == l.ID && !l.Alive() {
		l.Expire(LostAway) // but its work may have ended well before
	}
}

// LostAway is the reason for the end of a chain while this peer was away.
const LostAway = "the lease ended while the buyer was away"
