package buyer

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/probe"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// owed is what the vouchers of a lease say: the final one if there is one, else
// the best that was issued.
func (l *bought) owed() market.Amount {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.payer.Voucher(); v != nil && !l.rec.Void {
		return v.Cumulative
	}
	return 0
}

// loss is what was paid for the slots of the lease's line since work on it began that came to nothing; a zero time: since it was leased.
func (l *bought) loss(begun time.Time) market.Amount {
	var paid market.Amount
	for _, o := range l.line.all() {
		if owed := o.owed(); paid <= math.MaxUint64-owed {
			paid += owed
		}
	}
	if begun.IsZero() {
		return paid
	}
	g := l.b.cfg.Genesis
	worth, err := l.core.Rate.Owed(g.SlotsIn(time.Since(begun)) + g.IntervalSlots) // an interval is paid ahead
	if err != nil {
		return paid
	}
	return min(paid, worth)
}

// spent reports whether the last slot of the lease's line, or the last of its money, is paid for.
func (l *bought) spent() bool {
	l = l.line.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.payer.Voucher()
	return v != nil && (v.Horizon >= l.core.End || l.core.Rate > 0 && v.Cumulative >= l.core.Cap)
}

// most is what a lease can still come to cost.
func (l *bought) most() market.Amount {
	owed := l.owed()
	l.mu.Lock()
	defer l.mu.Unlock()
	if st := l.payer.State(); st == meter.PayerSettled || st == meter.PayerStopping {
		return owed
	}
	return l.core.Cap
}

// bought lists the leases of the job in the order in which its receipts are
// anchored: by rank, by epoch, by id, the same in every process.
func (s *supervisor) bought() []*bought {
	s.mu.Lock()
	leases := append([]*bought(nil), s.paid...)
	s.mu.Unlock()
	slices.SortFunc(leases, func(x, y *bought) int {
		return cmp.Or(cmp.Compare(x.core.Rank, y.core.Rank), cmp.Compare(x.core.RankEpoch, y.core.RankEpoch), bytes.Compare(x.id[:], y.id[:]))
	})
	return leases
}

// LeaseAccount is one lease of a job with all that proves what it cost.
type LeaseAccount struct {
	Lease    market.LeaseID   `json:"lease"`
	Provider sign.Key         `json:"provider"`
	Payout   sign.Key         `json:"payout"`
	Rank     uint32           `json:"rank"`
	Epoch    uint32           `json:"epoch"`
	Route    string           `json:"route"` // by which its quote came
	Active   bool             `json:"active"`
	State    string           `json:"state"` // of the payer
	Owed     market.Amount    `json:"owed"`
	Reason   string           `json:"reason,omitempty"`
	Escrow   sign.Key         `json:"escrow,omitzero"` // that it is paid from
	Void     bool             `json:"void,omitempty"`  // its money was not in the escrow in time: it cost nothing
	Signed   []byte           `json:"signed"`          // market.Lease
	Keys     []byte           `json:"keys"`            // market.KeySet
	Voucher  []byte           `json:"voucher,omitempty"`
	Receipts []verify.Receipt `json:"receipts"`
}

// Receipts returns the job's leases with their receipts and vouchers.
func (b *Buyer) Receipts(ctx context.Context, id string) ([]LeaseAccount, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	leases := s.bought()
	out := []LeaseAccount{}
	for _, l := range leases {
		a, err := l.account(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func (l *bought) account(ctx context.Context) (LeaseAccount, error) {
	owed := l.owed()
	l.mu.Lock()
	a := LeaseAccount{
		Lease: l.id, Provider: l.core.Provider, Payout: l.core.Payout, Rank: l.core.Rank, Epoch: l.core.RankEpoch, Route: l.rec.Route,
		Active: l.rec.Active, State: string(l.payer.State()), Owed: owed, Reason: l.rec.Reason, Escrow: l.rec.Escrow, Void: l.rec.Void, Signed: l.rec.Lease, Keys: l.rec.Keys,
	}
	v := l.payer.Voucher()
	a.Voucher = l.rec.Voucher
	l.mu.Unlock()
	if v != nil && l.as == voice(l.b.own) { // what others sign is kept
		signed, err := l.voucher(ctx, *v)
		if err != nil {
			return a, err
		}
		a.Voucher = signed
	}
	err := l.b.cfg.Store.List(ctx, kindReceipt, l.id.String()+"/", func(key string, value []byte) error {
		r, err := verify.UnmarshalReceipt(value)
		if err != nil {
			return fmt.Errorf("reading receipt %s: %w", key, err)
		}
		a.Receipts = append(a.Receipts, r)
		return nil
	})
	return a, err
}

// Probes lists the records of a job's probes, by lease and number.
func (b *Buyer) Probes(ctx context.Context, id string) ([]probe.Record, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	var leases []market.LeaseID
	for _, l := range s.bought() {
		if !slices.Contains(leases, l.first) {
			leases = append(leases, l.first)
		}
	}
	return probe.List(ctx, b.cfg.Store, leases...)
}
