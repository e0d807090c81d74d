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
	"github.com/starling-network/starling/node/buyer/record"
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
	// Anchored returns the newest anchored records of this peer's units, at most most.
	Anchored(most int) []sign.Hash
	// Passed fetches the record of another peer's audit, checks it, and returns its anchor, which is not checked.
	Passed(ctx context.Context, of sign.Key, record sign.Hash) (rules.Record, chain.Inclusion, error)
}

// Buyer is the jobs of this peer's own.
type Buyer interface {
	// Open lists the jobs that have not ended.
	Open() []record.Job
	// Anchored lists the ended jobs with anchored receipts.
	Anchored() []record.Anchored
	// Receipts returns the leases of a job with their receipts.
	Receipts(ctx context.Context, job string) ([]record.LeaseAccount, error)
}

// Config is the configuration of a Room.
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

// New makes the room, with the marks and receipts of an earlier process.
func New(ctx context.Context, cfg Config) (*Room, error) {
	r := &Room{cfg: cfg}
	shown := reputation.ShowerConfig{
		Genesis: cfg.Genesis, Self: cfg.Key, Store: cfg.Store, Own: own{r}, Anchor: cfg.Anchor, Busy: r.busy,
		Slot: func() (market.Slot, error) { return cfg.Slots.Now(time.Now()) }, Log: cfg.Log,
	}
	read := reputation.ReaderConfig{
		Book: cfg.Book, Store: cfg.Store, Peers: peers{reputation.Asker{Host: cfg.Host, Tag: cfg.Genesis.Tag()}},
		Anchor: cfg.Anchor, Busy: r.busy, Log: cfg.Log,
	}
	if cfg.Audits != nil {
		read.Records = checks{r}
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

// Run keeps both sides up to date until ctx ends. On a free network nothing is anchored, and no peer is asked.
func (r *Room) Run(ctx context.Context) error {
	if r.cfg.Genesis.Free {
		<-ctx.Done()
		return nil
	}
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

// peers is the peers that this one is connected to.
type peers struct{ reputation.Asker }

// Connected implements reputation.Peers.
func (p peers) Connected() (out []sign.Key) {
	for _, id := range p.Host.Network().Peers() {
		if k, err := p2p.KeyFromPeerID(id); err == nil {
			out = append(out, sign.Key(k))
		}
	}
	return out
}

// busy reports whether orders are in flight, of others or of this peer's user.
func (r *Room) busy() bool {
	return r.cfg.Busy() || slices.ContainsFunc(r.cfg.Buyer.Open(), func(j record.Job) bool {
		return j.State == record.Queued || j.State == record.Matching
	})
}

// own is the receipts and records that this peer anchored.
type own struct{ *Room }

// Settled implements reputation.Own. Detached jobs have keys of their own, which have no reputation.
func (o own) Settled() (out []reputation.Settled) {
	for _, j := range o.cfg.Buyer.Anchored() {
		out = append(out, reputation.Settled(j))
	}
	return out
}

// Receipts implements reputation.Own.
func (o own) Receipts(ctx context.Context, job string) (out []verify.Receipt, err error) {
	accounts, err := o.cfg.Buyer.Receipts(ctx, job)
	for _, a := range accounts {
		if !a.Void {
			out = append(out, a.Receipts...)
		}
	}
	return out, err
}

// Records implements reputation.Own.
func (o own) Records() []sign.Hash {
	if o.cfg.Audits == nil {
		return nil
	}
	return o.cfg.Audits.Anchored(reputation.MaxRecords)
}

// checks is the audit records of other peers.
type checks struct{ *Room }

// Checked implements reputation.Records.
func (c checks) Checked(ctx context.Context, of sign.Key, record sign.Hash) (reputation.Checked, error) {
	got, in, err := c.cfg.Audits.Passed(ctx, of, record)
	rule, broken := errors.AsType[*rules.RuleError](err)
	if broken && rule.Rule != rules.RuleCommittee && rule.Rule != rules.RuleTime { // peers may differ in these
		return reputation.Checked{}, fmt.Errorf("%w: %w", reputation.ErrRecord, rule)
	}
	if memos, ok := c.cfg.Ledger.(chain.Memos); ok && err == nil {
		err = in.CheckOn(ctx, memos, record)
	} else if err == nil {
		err = fmt.Errorf("reading the anchor in transaction %s: %w", in.Tx, chain.ErrDown)
	}
	if err != nil {
		return reputation.Checked{}, err
	}
	at := got.Answer.Window.First(c.cfg.Genesis.AuditSlots)
	return reputation.Checked{Provider: of, Answer: got.Answer.Hash(), At: at, Tx: in.Tx}, nil
}
