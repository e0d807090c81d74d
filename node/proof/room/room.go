// Package room composes everything that a peer does with proofs of offences: node/proof/notices publishes leases and
// finds double sales, node/proof/slash has stakes taken, node/proof/keep keeps, serves and publishes proofs.
package room

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/keep"
	"github.com/starling-network/starling/node/proof/notices"
	"github.com/starling-network/starling/node/proof/slash"
	"github.com/starling-network/starling/node/registry"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/gossip"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/replica"
)

// Book is the peer's knowledge of others.
type Book interface {
	// Heard receives each valid notice, at least once.
	Heard(n notices.Notice)
	// SoldTwice and Defrauded receive each offence once, when its proof is kept.
	SoldTwice(s proof.DoubleSale)
	Defrauded(fraud sign.Hash, offender sign.Key, at market.Slot)
	// History returns the newest known receipts of others' leases with a peer.
	History(ctx context.Context, about sign.Key) (proof.History, error)
}

// Config is the configuration of a Room. All of it is required, except fields with a stated meaning of nil.
type Config struct {
	Genesis market.Genesis
	Self    sign.Key
	Host    *p2p.Host
	Store   store.Store
	// Slot returns the chain's current slot, and an error while it is not known.
	Slot func() (market.Slot, error)
	// KeyOf reads the id or key of a peer.
	KeyOf func(text string) (sign.Key, error)
	Book  Book
	// Registered lists registrations; nil if the network has none, or the chain does not list them.
	Registered *registry.Registry
	// Program is the chain with the network's program. If it does not implement slash.Chain, stakes are not taken.
	Program any
	Light   bool // the peer takes no part in the network
	Log     *slog.Logger
}

// Room is a peer's proofs. It is safe for concurrent use once Run is called.
type Room struct {
	*notices.Publisher
	keep.Server
	cfg     Config
	accuser *slash.Accuser
	stakes  *stakes
	gossip  *keep.Gossip         // nil before Join
	doors   interface{ Close() } // nil before Start

	// Table is where leases are published. Set it before Run.
	Table notices.Table
}

// Open reads the proofs of an earlier process. It starts nothing; Run does.
func Open(ctx context.Context, cfg Config) (*Room, error) {
	r := &Room{cfg: cfg, stakes: newStakes(cfg.Host, cfg.Registered)}
	var err error
	r.Store, err = keep.Open(ctx, keep.Config{
		Genesis: cfg.Genesis, Journal: cfg.Store, Standing: r.stakes.standing, Kept: r.kept, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	r.accuser = slash.New(slash.Config{Genesis: cfg.Genesis, Slot: cfg.Slot, Proofs: r.Store, Log: cfg.Log})
	r.Publisher, err = notices.Open(ctx, notices.Config{
		Genesis: cfg.Genesis, Self: cfg.Self, Store: cfg.Store, Slot: cfg.Slot, Heard: cfg.Book.Heard, Proofs: r.Store,
		Log: cfg.Log,
	})
	return r, err
}

// kept notes a proof that is new.
func (r *Room) kept(c proof.Content) {
	switch x := c.(type) {
	case proof.DoubleSale:
		r.cfg.Book.SoldTwice(x)
	case proof.Fraud:
		r.cfg.Book.Defrauded(x.Hash(), x.Offender(), x.Answer.Window.First(r.cfg.Genesis.AuditSlots))
		r.accuser.Found()
	}
}

// Add adds the proofs of another room. Call it before Run.
func (r *Room) Add(s keep.Source) { r.Sources = append(r.Sources, s) }

// KeepDispute keeps a proof that results differ, and returns its hash as text.
func (r *Room) KeepDispute(ctx context.Context, d replica.Dissent) (string, error) {
	c := proof.Dispute{Dissent: d}
	_, err := r.Store.Keep(ctx, c, true)
	return c.Hash().String(), err
}

// KeepFraud keeps a fraud that this peer found, and has it published, if there is room for one more about the offender.
func (r *Room) KeepFraud(ctx context.Context, l audit.Lie) error {
	fresh, err := r.Store.Keep(ctx, proof.Fraud{Lie: l}, true)
	if fresh {
		r.Found()
	}
	if errors.Is(err, proof.ErrFull) { // a thousand free keys may lie, and no log should fill with it
		r.cfg.Log.Debug("a fraud is not kept", "err", err)
		return nil
	}
	return err
}

// Found has this peer's proofs published soon.
func (r *Room) Found() {
	if r.gossip != nil {
		r.gossip.Found()
	}
}

// hinter returns peers that may be on the topic.
type hinter = func(ctx context.Context, most int) ([]peer.AddrInfo, error)

// Join joins the topic of proofs, for frauds and refusals. Call it before Run.
func (r *Room) Join(g *gossip.Gossip, refusals keep.Handler, hints hinter) error {
	handlers := map[proof.Kind]keep.Handler{
		proof.KindFraud:   keep.Frauds{Store: r.Store, Slot: r.cfg.Slot, Staked: r.stakes.staked},
		proof.KindRefusal: refusals,
	}
	var err error
	r.gossip, err = keep.Join(g, keep.GossipConfig{Host: r.cfg.Host, Handlers: handlers, Hints: hints, Log: r.cfg.Log})
	return err
}

// Name implements service.Service.
func (*Room) Name() string { return "proofs" }

// Start begins to answer other peers.
func (r *Room) Start(context.Context) error {
	r.doors = r.Handle(r.cfg.Host, r.cfg.Genesis.Tag(), r.cfg.Log)
	return nil
}

// Close ends the answers.
func (r *Room) Close() error {
	if r.doors != nil {
		r.doors.Close()
	}
	return nil
}

// Run publishes leases, and finds and submits offences, until ctx ends.
func (r *Room) Run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Publisher.Run(gctx, r.Table) })
	if r.gossip != nil {
		g.Go(func() error { return r.gossip.Run(gctx, 2*stakesFresh) })
		g.Go(func() error { return r.stakes.follow(gctx, r.Found) })
	}
	if c, ok := r.cfg.Program.(slash.Chain); ok {
		g.Go(func() error { return r.accuser.Run(gctx, r.listed(c), r.cfg.Self) })
	}
	return g.Wait()
}

// listed is a chain with the list of registrations that this peer has.
func (r *Room) listed(c slash.Chain) slash.Chain {
	if r.cfg.Registered == nil {
		return c
	}
	return registered{c, r.cfg.Registered}
}

// registered is a chain with a list of registrations.
type registered struct {
	slash.Chain
	*registry.Registry
}

var _ slash.Registrations = registered{}

// fetchTime bounds a request to another peer.
const fetchTime = 10 * time.Second

// Proofs lists the proofs of a kind, or all for the empty one.
func (r *Room) Proofs(k proof.Kind) []proof.Entry { return r.List(k) }

// Proof returns a proof that a peer has, or that this one has if the key is zero or its own. It returns
// proof.ErrUnknown.
func (r *Room) Proof(ctx context.Context, of sign.Key, h sign.Hash) (proof.Proof, error) {
	if of.IsZero() || of == r.cfg.Self {
		return r.Get(ctx, h)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	c, err := r.Fetch(ctx, of, h)
	if err != nil {
		return proof.Proof{}, err
	}
	return proof.New(c)
}

func (r *Room) asker() keep.Asker { return keep.Asker{Host: r.cfg.Host, Tag: r.cfg.Genesis.Tag()} }

// Fetch requests a proof from a peer by its hash; see keep.Asker.
func (r *Room) Fetch(ctx context.Context, from sign.Key, h sign.Hash) (proof.Content, error) {
	return r.asker().Fetch(ctx, from, h)
}

// Ask sends a request for a proof, or for a list of audit records, to a peer.
func (r *Room) Ask(ctx context.Context, from sign.Key, req *nodepb.ProofRequest) (*nodepb.ProofReply, error) {
	return r.asker().Ask(ctx, from, req)
}

// History returns the receipts of others that count for or against a peer, given by id or key.
func (r *Room) History(ctx context.Context, peer string) (proof.Proof, error) {
	key, err := r.cfg.KeyOf(peer)
	if err != nil {
		return proof.Proof{}, err
	}
	h, err := r.cfg.Book.History(ctx, key)
	if err != nil {
		return proof.Proof{}, err
	}
	return proof.New(h)
}

// AnchorIn reads the receipts that a final transaction anchors. It returns the errors of proof.AnchorIn, and
// chain.ErrDown without a program.
func (r *Room) AnchorIn(ctx context.Context, tx chain.TxID) (chain.Commitment, error) {
	c, ok := r.cfg.Program.(proof.ProgramAnchors)
	if !ok {
		return chain.Commitment{}, fmt.Errorf("reading the anchor in transaction %s: %w", tx, chain.ErrDown)
	}
	return proof.AnchorIn(ctx, c, tx)
}

// Watch watches a unit for double sale. It returns notices.ErrLight for a light peer, and notices.ErrMany.
func (r *Room) Watch(ctx context.Context, w notices.Watched) error {
	if r.cfg.Light {
		return notices.ErrLight
	}
	return r.Publisher.Watch(ctx, w)
}

// KeepProof checks and stores a proof from a file, as found by this peer. It returns proof.ErrFile for a proof that
// does not hold on this network, and the errors of keep.Store.Keep.
func (r *Room) KeepProof(ctx context.Context, f proof.File) (proof.Entry, error) {
	if f.Genesis.Hash() != r.cfg.Genesis.Hash() {
		return proof.Entry{}, fmt.Errorf("%w: of network %s, want %s", proof.ErrFile, f.Genesis.Tag(),
			r.cfg.Genesis.Tag())
	}
	found, err := f.Check()
	if err != nil {
		return proof.Entry{}, fmt.Errorf("%w: %w", proof.ErrFile, err)
	}
	if _, err := r.Store.Keep(ctx, found.Content(), true); err != nil {
		return proof.Entry{}, err
	}
	r.Found()
	e, _ := r.Store.Entry(found.Hash)
	return e, nil
}
