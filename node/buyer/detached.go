package buyer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/verify"
)

// A detached job goes on when the peer it was submitted to, its owner, is gone. It has a key of its own, in whose name
// its leases are bought, and guardians that hold this key: a majority of them signs its vouchers, and says who
// supervises it. The owner does so whenever it is there. Replacements come only from the standbys that the owner put
// into the escrow.

// errSuperseded ends the work of a job that another peer supervises from now on.
var errSuperseded = errors.New("another peer supervises the job now")

// owned reports whether the job is the peer's own to settle.
func (b *Buyer) owned(j Job) bool { return j.Detached == nil || j.Detached.Owner == b.self }

// guarded is the voice of a detached job.
type guarded struct {
	b      *Buyer
	job    string
	secret sign.Private
	hash   sign.Hash

	mu    sync.Mutex
	set   market.KeySet   // none before the guardians are found
	panel *guardian.Panel // likewise
}

func (g *guarded) Key() sign.Signer { return g.secret }
func (g *guarded) Alone() bool      { return false }

func (g *guarded) keys() market.KeySet {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.set
}

// guardians are those who are asked; nil before they are found.
func (g *guarded) guardians() *guardian.Panel {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.panel
}

// close ends the messages to the guardians.
func (g *guarded) close() {
	if p := g.guardians(); p != nil {
		p.Close()
	}
}

func (g *guarded) Epoch() uint64 {
	epoch, _ := g.proof()
	return epoch
}

// proof is the epoch under which this peer supervises, and the grant of it.
func (g *guarded) proof() (epoch uint64, grant []byte) {
	if p := g.guardians(); p != nil {
		return p.Epoch()
	}
	return 1, nil
}

func (g *guarded) terms(job.Job, []byte) (sign.Hash, error) { return g.hash, nil }

func (g *guarded) Voucher(ctx context.Context, l *leases.Lease, _ verify.Voucher) (verify.SignedVoucher, error) {
	lease, err := handed(l)
	if err != nil {
		return verify.SignedVoucher{}, err
	}
	v, err := g.guardians().SignVoucher(ctx, lease)
	if err != nil {
		return v, err
	}
	return v, l.Save(ctx, func(r *leases.Record) { r.Voucher = v.Marshal() })
}

// tellAgain is how long after a lease's change its guardians are told again that did not answer.
const tellAgain = 2 * time.Second

// Changed implements leases.Principal. It reports the end of payments to the guardians, because the next voucher would
// seem overdue to them.
func (g *guarded) Changed(ctx context.Context, l *leases.Lease) {
	g.b.wg.Go(func() {
		for range 5 {
			lease, err := handed(l)
			if err == nil {
				_, err = g.guardians().SignVoucher(ctx, lease)
			}
			if err == nil || errors.Is(err, guardian.ErrSuperseded) || pause(ctx, tellAgain) != nil {
				return
			}
			g.b.cfg.Log.Debug("guardians were not told of the end of a lease", "lease", l.ID, "err", err)
		}
	})
}

// handed is a lease as its guardians keep it.
func handed(l *leases.Lease) (guardian.Lease, error) {
	record, payer, err := l.Marshal()
	rec := l.Record()
	return guardian.Lease{
		Signed: l.Signed, Escrow: rec.Escrow, Record: record, Payer: payer, MilliCPU: rec.PerUnit.MilliCPU,
	}, err
}

// detachedFor returns the keys and guardians' part of a new job.
func (b *Buyer) detachedFor(id string, spec job.Job) (*Detached, error) {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	defer clear(seed[:])
	k := sign.NewPrivate(seed).Key()
	terms, err := record.Terms(spec, k[:])
	if err != nil {
		return nil, err
	}
	box, err := b.secrets.SealKey(id, seed)
	if err != nil {
		return nil, err
	}
	return &Detached{Owner: b.self, Key: k, Terms: terms, Box: box}, nil
}

// voiceOf is the voice of a detached job that was read from the journal, or is new.
func (b *Buyer) voiceOf(j Job) (*guarded, error) {
	d := j.Detached
	key, err := b.secrets.Key(j.ID, d.Box, d.Key)
	if err != nil {
		return nil, err
	}
	g := &guarded{b: b, job: j.ID, secret: key, hash: d.Terms}
	if len(d.Guardians) > 0 {
		err = g.guardedBy(d, nil)
	}
	return g, err
}

// guardedBy gives the job its guardians: panel speaks to them, or is made.
func (g *guarded) guardedBy(d *Detached, panel *guardian.Panel) error {
	charter, err := charterOf(d)
	if err == nil {
		err = charter.Check(g.b.cfg.Genesis)
	}
	if err != nil {
		return err
	}
	if panel == nil {
		panel = guardian.NewPanel(guardian.PanelConfig{
			Host: g.b.cfg.Host, Genesis: g.b.cfg.Genesis, Key: g.b.cfg.Key, Charter: charter,
			Members: membersOf(d.Guardians), Local: g.b.cfg.Guardian,
			Slots: func() (market.Slot, error) { return g.b.cfg.Slots.Now(time.Now()) }, Epoch: d.Epoch, Grant: d.Grant,
		})
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.panel != nil && g.panel != panel {
		defer g.panel.Close()
	}
	g.set, g.panel = charter.Keys, panel
	return nil
}

// membersOf returns the guardians of a job as package guardian has them.
func membersOf(guardians []record.Guardian) []guardian.Member {
	out := make([]guardian.Member, len(guardians))
	for i, g := range guardians {
		out[i] = guardian.Member(g)
	}
	return out
}

// guardiansOf is the reverse of membersOf.
func guardiansOf(members []guardian.Member) []record.Guardian {
	out := make([]record.Guardian, len(members))
	for i, m := range members {
		out[i] = record.Guardian(m)
	}
	return out
}

// charterOf returns the guardians and the owner of a detached job.
func charterOf(d *Detached) (guardian.Charter, error) {
	keys := make([]sign.Key, len(d.Guardians))
	for i, m := range d.Guardians {
		keys[i] = m.Key
	}
	set, err := market.NewKeySet(uint8(len(keys)/2+1), keys...)
	return guardian.Charter{Job: d.Terms, Owner: d.Owner, Buyer: d.Key, Keys: set}, err
}

// witnesses sign a transaction beside this peer's key.
func (g *guarded) witnesses() []sign.Signer {
	if p := g.guardians(); p != nil {
		return p.Witnesses()
	}
	return nil
}

// standbysOf picks the standbys among the quotes that were not chosen, best first: each may be hired for as long as the
// leases last that were ordered.
func (s *supervisor) standbysOf(
	o market.Order, spare []sign.Key, quotes map[sign.Key]exchange.Quoted,
) ([]Standby, error) {
	var out []Standby
	for _, k := range spare {
		q, ok := quotes[k]
		if !ok || len(out) == int(s.snapshot().Spec.Standbys) || len(out) == pay.MaxStandbys {
			continue
		}
		rate, err := market.RateOf(q.Quote.Price, int(o.UnitsPer), s.b.cfg.Genesis.SlotMillis)
		if err != nil {
			return nil, err
		}
		budget, err := rate.Owed(o.Slots)
		if err != nil {
			return nil, err
		}
		addrs := append(slices.Clone(q.Quote.Addrs), q.Offer.Addrs...)
		out = append(out, Standby{Quote: q.Quote, Addrs: addrs, Budget: budget})
	}
	return out, nil
}

// standbys are as quotes for a new order, but those that were lost or have a lease of the job.
func (s *supervisor) standbys(o market.Order) []exchange.Quoted {
	j := s.snapshot()
	busy := map[sign.Key]bool{}
	for _, p := range j.Lost {
		busy[p] = true
	}
	s.mu.Lock()
	for _, l := range s.leases {
		if l != nil {
			busy[l.Core.Provider] = true
		}
	}
	s.mu.Unlock()
	var out []exchange.Quoted
	for _, sb := range j.Detached.Standbys {
		if busy[sb.Quote.Provider] {
			continue
		}
		q := sb.Quote
		q.Order, q.Expires = o.ID, o.Expires
		out = append(out, exchange.Quoted{Quote: q, Offer: market.Offer{Addrs: sb.Addrs}, Route: exchange.RouteStandby})
	}
	return out
}

// together are the leases of an order, as a hire lays them into one tranche.
func (s *supervisor) together(o market.OrderID) []market.LeaseCore {
	var out []market.LeaseCore
	for _, l := range s.bought() {
		if l.Core.Order == o && !l.Core.Successor() {
			out = append(out, l.Core)
		}
	}
	return out // bought has them by rank
}

// placedAt journals the place of the job's money before anybody else learns of it, its guardians too.
func (s *supervisor) placedAt(ctx context.Context, at pay.Placement) error {
	wages := map[string][]byte{}
	for _, g := range s.snapshot().Detached.Guardians {
		if g.Wage == nil {
			continue
		}
		f, ok := at.Wages[g.Wage.ID()]
		if !ok {
			return fmt.Errorf("the wage of guardian %s is not set aside", g.Key.Short())
		}
		wages[g.Key.String()] = f
	}
	return s.save(ctx, func(j *Job) {
		d := j.Detached.Clone()
		d.Escrow, d.Wages = &at.Place, wages
		d.Standbys = slices.DeleteFunc(slices.Clone(d.Standbys), func(sb Standby) bool {
			return !slices.Contains(at.Standbys, sb.Quote.Provider)
		})
		j.Detached = d
	})
}

// prepare journals the standbys of the order that a job's first leases are taken by.
func (s *supervisor) prepare(
	ctx context.Context, o market.Order, spares []sign.Key, quotes map[sign.Key]exchange.Quoted,
) error {
	standbys, err := s.standbysOf(o, spares, quotes)
	if err != nil {
		return err
	}
	return s.save(ctx, func(j *Job) {
		d := j.Detached.Clone()
		d.Standbys = standbys
		j.Detached = d
	})
}

// standbySlots is how many slots a standby may be hired for, at most most: its money is set aside until the escrow
// ends.
func (s *supervisor) standbySlots(most uint64) (uint64, error) {
	j := s.snapshot()
	if j.Detached.Escrow == nil {
		return 0, pay.ErrNoPlace
	}
	if now, err := s.b.cfg.Slots.Now(time.Now()); err == nil {
		most = min(most, uint64(max(j.Detached.Escrow.Deadline, now)-now))
	}
	for _, sb := range j.Detached.Standbys {
		rate, err := market.RateOf(sb.Quote.Price, int(j.Spec.Resources.Units), s.b.cfg.Genesis.SlotMillis)
		if err != nil {
			return 0, err
		}
		most = min(most, slotsFor(rate, sb.Budget))
	}
	return max(most, 1), nil
}
