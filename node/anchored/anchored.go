// Package anchored is the room of receipts that peers anchored on the chain: this peer shows its own, and reads those
// of connected peers for its reputation.
package anchored

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	rules "github.com/starling-network/starling/verify/audit"
)

// Audits is the audits of this peer's units and of others'.
type Audits interface {
	// Anchored returns the newest records of this peer's units that are anchored, at most so many.
	Anchored(most int) []sign.Hash
	// Passed fetches the record of another peer's audit, checks it, and returns its anchor, which is not checked.
	Passed(ctx context.Context, of sign.Key, record sign.Hash) (rules.Record, chain.Inclusion, error)
}

// Buyer is the jobs of this peer's own.
type Buyer interface {
	// Open lists the jobs that have not ended.
	Open() []buyer.Job
	// Anchored lists the jobs that are over and anchored.
	Anchored() []buyer.Anchored
	// Receipts returns the leases of a job with their receipts.
	Receipts(ctx context.Context, job string) ([]buyer.LeaseAccount, error)
}

// Config is what a Room is made of.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Key
	Store   store.Store
	Ledger  chain.Ledger
	// Anchor reads the receipts that a final transaction anchors.
	Anchor func(ctx context.Context, tx chain.TxID) (chain.Commitment, error)
	Slots  *slots.Clock
	Book   *reputation.Book
	Buyer  Buyer
	// Busy reports whether orders are in flight: reading waits then.
	Busy func() bool
	// Audits is optional; if nil, as on a network without audits, no records are shown and read.
	Audits Audits
	Log    *slog.Logger
}

// Room is the service of anchored receipts.
type Room struct {
	cfg    Config
	shower *reputation.Shower
	reader *reputation.Reader
	server *stream.Server // nil before Start
}

// New makes the room from what an earlier process left.
func New(ctx context.Context, cfg Config) (*Room, error) {
	r := &Room{cfg: cfg}
	shown := reputation.ShowerConfig{
		Genesis: cfg.Genesis, Self: cfg.Key, Store: cfg.Store, Settled: r.settled, Receipts: r.receipts,
		Anchor: cfg.Anchor, Slot: func() (market.Slot, error) { return cfg.Slots.Now(time.Now()) },
		Busy: r.busy, Records: func() []sign.Hash { return nil }, Log: cfg.Log,
	}
	read := reputation.ReaderConfig{
		Book: cfg.Book, Store: cfg.Store, Ask: reputation.Asker{Host: cfg.Host, Tag: cfg.Genesis.Tag()}.Ask,
		Anchor: cfg.Anchor, Peers: r.connected, Busy: r.busy, Log: cfg.Log,
	}
	if cfg.Audits != nil {
		shown.Records = func() []sign.Hash { return cfg.Audits.Anchored(reputation.MaxRecords) }
		read.Record = r.passed
	}
	var err error
	if r.shower, err = reputation.OpenShower(ctx, shown); err != nil {
		return nil, err
	}
	r.reader, err = reputation.OpenReader(ctx, read)
	return r, err
}

// Name implements service.Service.
func (*Room) Name() string { return "anchored" }

// Start begins to answer other peers.
func (r *Room) Start(context.Context) error {
	r.server = r.shower.Handle(r.cfg.Host, r.cfg.Genesis.Tag(), r.cfg.Log)
	return nil
}

// Run keeps both sides up to date until ctx ends.
func (r *Room) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.shower.Run(ctx) })
	g.Go(func() error { return r.reader.Run(ctx) })
	return g.Wait()
}

// Close ends the answers.
func (r *Room) Close() error {
	if r.server != nil {
		r.server.Close()
	}
	return nil
}

// connected returns the keys of the peers that this one is connected to.
func (r *Room) connected() (out []sign.Key) {
	for _, id := range r.cfg.Host.Network().Peers() {
		if k, err := p2p.KeyFromPeerID(id); err == nil {
			out = append(out, sign.Key(k))
		}
	}
	return out
}

// busy reports whether orders are in flight, of others or of this peer's user.
func (r *Room) busy() bool {
	return r.cfg.Busy() || slices.ContainsFunc(r.cfg.Buyer.Open(), func(j buyer.Job) bool {
		return j.State == buyer.Queued || j.State == buyer.Matching
	})
}

// settled returns the jobs of this peer's own that are over and anchored. Detached jobs have keys of their own, which
// have no reputation.
func (r *Room) settled() (out []reputation.Settled) {
	for _, j := range r.cfg.Buyer.Anchored() {
		out = append(out, reputation.Settled(j))
	}
	return out
}

// receipts returns the receipts of a job, in the order of its anchor.
func (r *Room) receipts(ctx context.Context, job string) (out []verify.Receipt, err error) {
	accounts, err := r.cfg.Buyer.Receipts(ctx, job)
	for _, a := range accounts {
		if !a.Void {
			out = append(out, a.Receipts...)
		}
	}
	return out, err
}

// passed fetches the record of another peer's audit and checks all of it, on chain too.
func (r *Room) passed(ctx context.Context, of sign.Key, record sign.Hash) (reputation.Checked, error) {
	got, in, err := r.cfg.Audits.Passed(ctx, of, record)
	rule, broken := errors.AsType[*rules.RuleError](err)
	if broken && rule.Rule != rules.RuleCommittee && rule.Rule != rules.RuleTime { // peers may differ in these
		return reputation.Checked{}, fmt.Errorf("%w: %w", reputation.ErrRecord, rule)
	}
	if memos, ok := r.cfg.Ledger.(chain.Memos); ok && err == nil {
		err = in.CheckOn(ctx, memos, record)
	} else if err == nil {
		err = fmt.Errorf("reading the anchor in transaction %s: %w", in.Tx, chain.ErrDown)
	}
	if err != nil {
		return reputation.Checked{}, err
	}
	at := got.Answer.Window.First(r.cfg.Genesis.AuditSlots)
	return reputation.Checked{Provider: of, Answer: got.Answer.Hash(), At: at, Tx: in.Tx}, nil
}
