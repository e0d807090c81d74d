// Package billing meters a provider's leases: it samples usage, proposes receipts to buyers, takes vouchers, and ends
// work that is not paid for.
//
// verify/meter's Seller decides, and node/metering journals each of its steps. A [Meter] is the seller of one lease and
// carries out its effects. [Meters] are those of all leases.
package billing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Ledger is the lease book. ledger.Ledger implements it.
type Ledger interface {
	// Book returns the book as it stands.
	Book() lease.Book
	// Step takes the book one event further, and returns the answer.
	Step(ctx context.Context, ev lease.Event) (lease.Effect, error)
}

// Work is the executions under leases. The executing room implements it.
type Work interface {
	// CPUMillis returns the processor time that a line's executions have used.
	CPUMillis(ctx context.Context, l market.LeaseID) uint64
	// Digest returns the result of a line's last execution; zero if there is none.
	Digest(l market.LeaseID) sign.Hash
	// End lets nothing more begin under a line, stops its programs with a grace, and returns when none runs.
	End(ctx context.Context, l market.LeaseID, grace time.Duration) error
}

// Money is the way in which leases are paid.
type Money interface {
	// Opened is called when the loop of a lease begins, also after a restart. Its goroutines end with ctx.
	Opened(ctx context.Context, s *Meter)
	// Earned is called for a lease that may have a new best voucher, or that is settled.
	Earned(s *Meter)
}

// Receipts are published receipts and broken leases.
type Receipts interface {
	// Filed is called with each receipt that both have signed, under its lease; calls may repeat. It must not wait.
	Filed(l market.Lease, units []market.UnitID, r verify.Receipt)
	// Failed records that the buyer of a lease broke it, once or more often.
	Failed(c market.LeaseCore, lost market.Amount)
}

// Config is the configuration of Meters. All of it is required.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Domain  sign.Domain
	Tag     string // of the network
	Key     sign.Signer
	Store   journal.Store
	Slots   *slots.Clock
	Ledger  Ledger
	Work    Work
	Money   Money
	Filed   Receipts
	Log     *slog.Logger
}

// receipts has the co-signed receipts. The sellers are in metering.Sellers.
var receipts = journal.Define[receiptKey, receipt]("sold")

// receiptKey is a lease and the number of a receipt, as text.
type receiptKey string

func keyOf(l market.LeaseID, seq uint64) receiptKey {
	return receiptKey(fmt.Sprintf("%s/%020d", l, seq))
}

// receipt is a co-signed receipt in the layout that both have signed.
type receipt struct {
	Receipt []byte `json:"receipt"`
}

// Meters are the meters of all leases. New starts nothing; Restart, Resume and Open do.
type Meters struct {
	cfg     Config
	floor   *floor
	sellers *metering.Meters[sold, meter.Seller]
	wg      sync.WaitGroup

	mu  sync.Mutex
	ctx context.Context // of Resume
	all map[market.LeaseID]*Meter
}

// New reads the records of metered slots, and bounds the first slot that the clock believes by it.
func New(ctx context.Context, cfg Config) (*Meters, error) {
	f, err := loadFloor(ctx, cfg.Store, cfg.Slots)
	if err != nil {
		return nil, err
	}
	p := &Meters{cfg: cfg, floor: f, ctx: ctx, all: map[market.LeaseID]*Meter{}}
	p.sellers = metering.New[sold, meter.Seller](metering.Config{
		Name: "seller", Store: cfg.Store, Clock: cfg.Slots, Log: cfg.Log,
	})
	return p, nil
}

// Begin takes the first voucher of a lease, in slot. Its effects come again when the loop begins.
func (p *Meters) Begin(ctx context.Context, r lease.Record, slot market.Slot, v verify.SignedVoucher) (*Meter, error) {
	s, err := p.load(ctx, r, slot)
	if err != nil {
		if errors.Is(err, meter.ErrTerms) {
			return nil, stream.Refuse("terms", err.Error())
		}
		return nil, err
	}
	if _, err := s.step(ctx, meter.VoucherReceived{Voucher: v}); err != nil {
		p.forgetWaiting(s)
		if rule, ok := errors.AsType[*verify.RuleError](err); ok {
			return nil, stream.Refuse(protocol.CodeVoucher, rule.Error())
		}
		return nil, err
	}
	return s, nil
}

// Find returns the meter of a lease, or nil.
func (p *Meters) Find(l market.LeaseID) *Meter {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[l]
}

// Wait returns when the loops of all leases have ended: after the context of Resume.
func (p *Meters) Wait() { p.wg.Wait() }

// Go runs a function that Wait waits for.
func (p *Meters) Go(f func()) { p.wg.Go(f) }

// Taken refuses commands under a lease that is not metered now.
func (p *Meters) Taken(r lease.Record) error {
	switch {
	case p.Find(r.Lease) != nil:
		return nil
	case r.State == lease.Active: // just restarted
		return stream.Refuse(stream.CodeBusy, "lease: not restored yet after a restart; try again")
	}
	return stream.Refuse("lease", fmt.Sprintf("the lease is %s: %s", r.State, r.EndReason))
}

// HandTo lets the peers that command the leases of a line co-sign and pay for them.
func (p *Meters) HandTo(first market.LeaseID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.all {
		r, ok := p.cfg.Ledger.Book().Lease(s.rec.Lease)
		if s.rec.First() != first || !ok {
			continue
		}
		// The current commander: the next supervisor may have been faster.
		if id, err := p2p.PeerIDFromKey(r.Peer()); err == nil {
			s.handTo(id)
		}
	}
}

// Over returns the ended leases that are settled with their line: metered leases, and leases with executions.
func (p *Meters) Over(executed []market.LeaseID) []market.LeaseID {
	lines, busy := map[market.LeaseID]market.LeaseID{}, map[market.LeaseID]bool{} // lines by lease
	p.mu.Lock()
	for id, s := range p.all {
		lines[id] = s.rec.First()
		if s.busy() {
			busy[s.rec.First()] = true
		}
	}
	p.mu.Unlock()
	for _, id := range executed {
		lines[id] = id
	}
	for r := range p.cfg.Ledger.Book().Records() {
		if r.Core != nil && r.State.Live() {
			busy[r.First()] = true
		}
	}
	var out []market.LeaseID
	for id, line := range lines {
		if !busy[line] {
			out = append(out, id)
		}
	}
	return out
}

// Forgotten drops the meter of a lease.
func (p *Meters) Forgotten(l market.LeaseID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.all[l]; s != nil {
		delete(p.all, l)
		p.sellers.Drop(sold{s})
	}
}

// Receipts calls fn for the receipts of a lease, in the layout that both have signed, in the order of their numbers.
func (p *Meters) Receipts(ctx context.Context, l market.LeaseID, fn func(raw []byte) error) error {
	return receipts.List(ctx, p.cfg.Store, l.String()+"/", func(_ receiptKey, r receipt) error { return fn(r.Receipt) })
}
