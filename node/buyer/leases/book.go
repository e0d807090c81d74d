// Package leases keeps the leases of a buyer, from their signatures to their settlement.
//
//	Open ──Ready──▸ funded ──Add, Prepay──▸ paying ──▸ Stop, Void, last receipt ──▸ settled
//	                                        ▲    │
//	                             receipt ───┘    └──▸ voucher
//
// A [Lease] has a payer, the state machine of verify/meter, which decides on signatures. The [Book] has all leases that
// are in memory. It answers the receipts that providers propose, and journals each step of a payer before its effect
// leaves the peer.
//
// A lease is followed by its successors, which make it longer. Together they are a chain: programs are named by its
// first lease, and a rank loses its provider only when the whole chain is lost.
package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// The journal's records of leases.
var (
	Records = journal.Define[market.LeaseID, Record]("lease")
	// Payers has the payers (meter.Payer).
	Payers = journal.Define[market.LeaseID, json.RawMessage]("payer")
	// Receipts has the receipts that both sides signed, by lease and number.
	Receipts = journal.DefineRaw("receipt")
)

// Observer is notified of changes of leases. Its methods must not wait.
type Observer interface {
	// Filed reports a receipt that both sides signed, with the units of its lease. A report may repeat.
	Filed(l market.Lease, units []market.UnitID, r verify.Receipt)
	// Settled reports that a watched lease costs nothing more. It is called in a separate task, and may block.
	Settled(l *Lease)
}

// StepTimeout is how long a provider may take for one step of the protocol of leases.
const StepTimeout = 2 * time.Second

// Tasks runs functions in separate goroutines, for which its owner waits. A sync.WaitGroup is one.
type Tasks interface{ Go(f func()) }

// Config is the configuration of a Book. All of it is required.
type Config struct {
	Host     *p2p.Host
	Genesis  market.Genesis
	Store    store.Store
	Clock    metering.Clock
	Observer Observer
	Tasks    Tasks
	Log      *slog.Logger
}

// Book has the leases of a buyer that are in memory.
type Book struct {
	cfg    Config
	domain sign.Domain
	tag    string
	payers *metering.Meters[metered, meter.Payer]

	mu     sync.Mutex
	run    context.Context // of Start; nil before
	began  time.Time       // likewise
	leases map[market.LeaseID]*Lease
	orders map[market.OrderID]int // of which leases are being taken, and by how many
}

// New returns a Book without leases. It starts nothing.
func New(cfg Config) *Book {
	return &Book{
		cfg: cfg, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(), leases: map[market.LeaseID]*Lease{},
		orders: map[market.OrderID]int{},
		payers: metering.New[metered, meter.Payer](metering.Config{
			Name: "payer", Store: cfg.Store, Clock: cfg.Clock, Log: cfg.Log,
		}),
	}
}

// Load reads the leases of an earlier process, and returns them in the order of their ids. principal returns the
// principal of a job.
func (b *Book) Load(ctx context.Context, principal func(job string) (Principal, error)) ([]*Lease, error) {
	var out []*Lease
	err := Records.List(ctx, b.cfg.Store, "", func(id market.LeaseID, rec Record) error {
		as, err := principal(rec.Job)
		if err != nil {
			return fmt.Errorf("reading lease %s: %w", id, err)
		}
		state, err := Payers.Get(ctx, b.cfg.Store, id)
		if err != nil {
			return fmt.Errorf("reading the payer of lease %s: %w", id, err)
		}
		l, err := b.Restore(rec, state, as)
		if err != nil {
			return fmt.Errorf("reading lease %s: %w", id, err)
		}
		out = append(out, l)
		return nil
	})
	if err == nil {
		err = b.Link(out)
	}
	if err != nil {
		return nil, err
	}
	b.Replace(out)
	return out, nil
}

// Start serves providers and runs the payers until ctx ends. The caller calls stop then, and waits for the tasks.
func (b *Book) Start(ctx context.Context) (stop func()) {
	b.mu.Lock()
	b.run, b.began = ctx, time.Now()
	b.mu.Unlock()
	server := protocol.Meter.Handle(b.cfg.Host, b.tag, b.meter, stream.Limits{PerPeer: 64, Logger: b.cfg.Log})
	b.cfg.Tasks.Go(func() { b.payers.Run(ctx) })
	return server.Close
}

// Get returns a lease, or nil.
func (b *Book) Get(id market.LeaseID) *Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leases[id]
}

// All returns the leases, in no order.
func (b *Book) All() []*Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.leases))
}

// Len returns the number of leases.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.leases)
}

// Add adds a lease that is to be paid for to the book and to its chain. It reports false if the book has it.
func (b *Book) Add(l *Lease) bool {
	b.mu.Lock()
	_, known := b.leases[l.ID]
	b.leases[l.ID] = l
	b.mu.Unlock()
	if !known {
		l.join(l)
	}
	return !known
}

// Replace adds leases, in place of those with the same ids.
func (b *Book) Replace(leases []*Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range leases {
		b.leases[l.ID] = l
	}
}

// Remove removes a lease. Its payer takes no more events.
func (b *Book) Remove(l *Lease) {
	b.mu.Lock()
	if b.leases[l.ID] == l {
		delete(b.leases, l.ID)
	}
	b.mu.Unlock()
	b.payers.Drop(metered{l})
}

// Using notes that leases of an order are being taken, until the caller calls back.
func (b *Book) Using(o market.OrderID) (back func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orders[o]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.orders[o]--; b.orders[o] == 0 {
			delete(b.orders, o)
		}
	}
}

// InUse reports whether leases of an order are being taken, or one can still cost something or has a deposit that was
// not retired yet.
func (b *Book) InUse(o market.OrderID) bool {
	b.mu.Lock()
	taking := b.orders[o] > 0
	b.mu.Unlock()
	return taking || slices.ContainsFunc(b.All(), func(l *Lease) bool { // read after taking: those are added before
		return l.Core.Order == o && (!l.Done() || !l.Retired())
	})
}

// Watch has the payer of a lease ticked until it is settled, another peer commands the lease, or the peer stops. It is
// called after Start.
func (b *Book) Watch(l *Lease) {
	tag := "lease/" + l.ID.Short()
	b.cfg.Host.Protect(l.Peer, tag)
	b.mu.Lock()
	run := b.run
	b.mu.Unlock()
	every := time.Duration(b.cfg.Genesis.IntervalSlots*b.cfg.Genesis.SlotMillis) * time.Millisecond / 2
	metered{l}.add()
	if err := b.payers.Watch(metered{l}, max(every, 50*time.Millisecond)); err != nil {
		b.cfg.Log.Debug("a lease is not watched", "lease", l.ID, "err", err)
	}
	b.cfg.Tasks.Go(func() {
		defer b.cfg.Host.Unprotect(l.Peer, tag)
		select {
		case <-run.Done():
		case <-l.left:
		case <-l.settled:
			b.cfg.Observer.Settled(l)
		}
	})
}

// Call sends a provider a request about a lease or a hold.
func (b *Book) Call(ctx context.Context, to peer.ID, req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	return protocol.Lease.Call(ctx, b.cfg.Host, b.tag, to, req)
}

// Reconnect opens a connection to the provider of every lease that is not settled. Call it after a change of addresses,
// because providers request the next voucher at the old ones.
func (b *Book) Reconnect(ctx context.Context) {
	var peers []peer.ID
	for _, l := range b.All() {
		if !l.Done() && !slices.Contains(peers, l.Peer) {
			peers = append(peers, l.Peer)
		}
	}
	var wg sync.WaitGroup
	for _, id := range peers {
		wg.Go(func() {
			b.cfg.Host.Forgive(id)
			if err := b.cfg.Host.Connect(ctx, peer.AddrInfo{ID: id}); err != nil {
				b.cfg.Log.Debug("a provider was not reached", "peer", id, "err", err)
			}
		})
	}
	wg.Wait()
}

// Forget returns the writes that remove a lease from the journal, but for its receipts.
func Forget(id market.LeaseID) []store.Put {
	return []store.Put{{Kind: Records.Kind(), Key: id.String()}, {Kind: Payers.Kind(), Key: id.String()}}
}

// errNoRoot is returned for a successor whose first lease is missing.
var errNoRoot = errors.New("the first lease of its chain is not in the journal")

// Link makes chains of restored leases. All leases of each chain must be among them.
func (b *Book) Link(leases []*Lease) error {
	byID := map[market.LeaseID]*Lease{}
	for _, l := range leases {
		byID[l.ID] = l
	}
	for _, l := range leases {
		if l.rec.Root.IsZero() {
			continue
		}
		root := byID[l.rec.Root]
		if root == nil {
			return fmt.Errorf("reading lease %s: lease %s: %w", l.ID.Short(), l.rec.Root.Short(), errNoRoot)
		}
		l.cancel()
		l.chain = root.chain
		l.join(l)
	}
	now, err := b.cfg.Clock.Now(time.Now())
	if err != nil {
		now = 0 // not known yet: then the receipts decide
	}
	for _, l := range leases {
		l.gone, l.inTime = l.payer.State() != meter.PayerPaying, l.usedUp(now)
	}
	for _, l := range leases {
		l.back = l.gone && !l.begun(l)
	}
	return nil
}
