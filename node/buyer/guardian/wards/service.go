// Package wards guards the jobs of others: it is a guardian's side of package guardian. A guarded job is a ward.
//
// [Service] answers the requests of owners, supervisors and other guardians:
//
//	admission   the policy by which jobs are taken in
//	guarded     the machine of a ward: its requests, and the work that time brings
//	shell       the journal, the other guardians and the chain, for the machines
//	fetcher     the files of wards
//
// A guardian signs by the rules of [Ward], a value without time and network. Each ward is a machine of package machine:
// every decision is in the journal before it leaves the peer, and no lock is held over a write.
package wards

import (
	"context"
	"log/slog"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// Config is the configuration of a Service. All of it is required, except fields with a stated meaning of nil.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Signer // of the peer
	Payout  sign.Key    // wallet of the peer's owner
	Policy  Policy
	Store   journal.Store
	Slots   Clock
	Files   Files
	Log     *slog.Logger

	// Unseal opens a box that was sealed to Key.
	Unseal func(p sealed.Purpose, box []byte) ([]byte, error)
	// Backed returns nil once this peer's wage for a job is on chain, at the place in the job's state. It is optional;
	// if nil, wages are not checked.
	Backed func(ctx context.Context, w Ward, state []byte) error
}

// Clock returns the chain's slot. slots.Clock implements it.
type Clock interface {
	Now(at time.Time) (market.Slot, error)
}

// Files keeps the files of jobs.
type Files interface {
	// Fetch brings a file from a peer.
	Fetch(ctx context.Context, from peer.ID, c cid.Cid, max int64) error
	// Share grants a peer access to a file.
	Share(to peer.ID, c cid.Cid)
	// Drop is called when jobs no longer need some files.
	Drop(all ...cid.Cid)
}

// Supervisor resumes the jobs that this peer supervises as their guardian.
type Supervisor interface {
	// TakeUp is called when this peer begins to supervise a job, and again after a restart. It returns when it has its
	// data. An error is logged, and it is called again.
	TakeUp(ctx context.Context, t guardian.Taken) error
	// Yield is called when another peer supervises a job under a higher epoch: nothing more may be done for it. It must
	// not wait.
	Yield(job sign.Hash, epoch uint64)
}

// guard is this peer as a guardian.
type guard struct {
	rules
	cfg        Config
	tag        string
	supervisor Supervisor
	local      guardian.Local
	fellows    func(w Ward) fellows // panel
	runner     *machine.Runner[sign.Hash, guarded, event, effect]
}

func (g *guard) slot() (market.Slot, error) { return g.cfg.Slots.Now(time.Now()) }

// now is the time of the wards. Its slot is 0 if it is unknown.
func (g *guard) now() (machine.Now, error) {
	now := machine.Now{Time: time.Now()}
	now.Slot, _ = g.cfg.Slots.Now(now.Time)
	return now, nil
}

// open opens the key of a job; nil if it is not sealed to this peer.
func (g *guard) open(job sign.Hash, box []byte) *sign.Private {
	if len(box) == 0 {
		return nil
	}
	seed, err := g.cfg.Unseal(guardian.SealedFor(g.tag, job), box)
	if err != nil || len(seed) != 32 {
		return nil
	}
	key := sign.NewPrivate([32]byte(seed))
	clear(seed)
	return &key
}

// panel speaks to all guardians of a ward.
func (g *guard) panel(w Ward) *guardian.Panel {
	return guardian.NewPanel(guardian.PanelConfig{
		Host: g.cfg.Host, Genesis: g.genesis, Key: g.cfg.Key, Charter: w.Charter, Members: w.Members,
		Local: g.local, Slots: g.slot, Epoch: w.Epoch, Grant: w.Grant,
	})
}

// all returns the wards with their records, in no order.
func (g *guard) all() (out []guarded) {
	for _, job := range g.runner.Keys() {
		if w, _, err := g.runner.Get(job); err == nil {
			out = append(out, w)
		}
	}
	return out
}

// wards returns the wards, in no order.
func (g *guard) wards() (out []Ward) {
	for _, w := range g.all() {
		out = append(out, w.Ward)
	}
	return out
}

// blobs are the files of the jobs that are guarded.
func (g *guard) blobs() map[cid.Cid]bool {
	out := map[cid.Cid]bool{}
	for _, w := range g.all() {
		for _, f := range w.needed() {
			out[f.CID] = true
		}
	}
	return out
}

// Service guards jobs for one peer. New starts nothing; Run does.
type Service struct {
	*guard
	doors *admission
}

// New reads the wards of an earlier process.
func New(ctx context.Context, cfg Config) (*Service, error) {
	g := &guard{cfg: cfg, tag: cfg.Genesis.Tag(), rules: rules{
		genesis: cfg.Genesis, domain: cfg.Genesis.Domain(), self: cfg.Key.Key(), timing: guardian.TimingOf(cfg.Genesis),
		maxBytes: cfg.Policy.MaxBytes,
	}}
	s := &Service{guard: g, doors: &admission{guard: g, at: g.connectedFrom, coming: map[sign.Hash]Ward{}}}
	g.local, g.fellows = s, func(w Ward) fellows { return g.panel(w) }
	files := &fetcher{guard: g, under: make(chan struct{}, maxFetches)}
	var err error
	g.runner, err = machine.New(ctx, shell{g, files}, machine.Config[event]{
		Name: "ward", Store: cfg.Store, Clock: g.now, Resume: resumed{}, Tick: ticked{}, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// HandTo sets the supervisor of the jobs that this peer takes over. It is called before Run.
func (s *Service) HandTo(to Supervisor) { s.supervisor = to }

// Run guards until ctx ends. It returns an error if the journal is broken.
func (s *Service) Run(ctx context.Context) error {
	answer := func(ctx context.Context, from peer.ID, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
		k, err := p2p.KeyFromPeerID(from)
		if err != nil {
			return nil, guardian.Refuse(guardian.CodeUnknown, "%v", err)
		}
		return s.Answer(ctx, sign.Key(k), req)
	}
	server := protocol.Guard.Handle(s.cfg.Host, s.tag, answer, stream.Limits{PerPeer: 128, Logger: s.cfg.Log})
	defer server.Close()
	return s.runner.Run(ctx)
}

// Jobs returns the charters of the guarded jobs that are not dismissed, in no order.
func (s *Service) Jobs() []guardian.Charter {
	var out []guardian.Charter
	for _, w := range s.wards() {
		if !w.Dismissed {
			out = append(out, w.Charter)
		}
	}
	return out
}

// Wards are the jobs that this peer guards, in no order. They include dismissed ones with guardians that may still be
// paid.
func (s *Service) Wards() []Ward { return s.wards() }

// Escrows are those of the jobs that this peer guards.
func (s *Service) Escrows() []sign.Key {
	var out []sign.Key
	for _, w := range s.wards() {
		out = append(out, w.Escrows...)
	}
	return out
}

// State returns the last state that a job's supervisor reported. It reports false if there is none or the job was
// dismissed.
func (s *Service) State(job sign.Hash) (guardian.State, bool) {
	w, _, err := s.runner.Get(job)
	if err != nil || w.state == nil {
		return guardian.State{}, false
	}
	return w.state.State, true
}

// Guarded returns this peer's ward of a job, and a panel of its guardians to read the standing or to sign the wage. The
// caller closes the panel. It returns false for an unknown or deleted job.
func (s *Service) Guarded(job sign.Hash) (Ward, *guardian.Panel, bool) {
	w, _, err := s.runner.Get(job)
	if err != nil {
		return Ward{}, nil, false
	}
	return w.Ward, s.panel(w.Ward), true
}

// Blobs are the files of the jobs that are guarded.
func (s *Service) Blobs() map[cid.Cid]bool { return s.blobs() }
