// Package wards guards the jobs of others: it is a guardian's side of package guardian. A guarded job is a ward.
//
// [Service] answers the requests of owners, supervisors and other guardians, by rooms that each hold one thing:
//
//	admission   the policy by which jobs are taken in
//	register    the wards of this peer, by job
//	guarded     one ward behind its lock: its supervisor's requests, and its records in the journal
//	fetcher     the files of wards
//	keeper      the work that time brings: the other guardians' data, the take-over of an abandoned job
//
// A guardian signs by the rules of [Ward], a value without time and network. Every decision is in the journal before
// it leaves the peer.
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
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/slots"
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
	Slots   *slots.Clock
	Files   Files
	Log     *slog.Logger

	// Unseal opens a box that was sealed to Key.
	Unseal func(p sealed.Purpose, box []byte) ([]byte, error)
	// Backed returns nil once this peer's wage for a job is on chain, at the place in the job's state. It is optional;
	// if nil, wages are not checked.
	Backed func(ctx context.Context, w Ward, state []byte) error
}

// Files keeps the files of jobs.
type Files interface {
	// Fetch brings a file from a peer.
	Fetch(ctx context.Context, from peer.ID, c cid.Cid, max int64) error
	// Share grants a peer access to a file.
	Share(to peer.ID, c cid.Cid)
	// Drop is called when a job no longer needs a file.
	Drop(c cid.Cid)
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
	cfg        Config
	domain     sign.Domain
	tag        string
	self       sign.Key
	timing     guardian.Timing
	supervisor Supervisor
	local      guardian.Local
	files      *fetcher
}

func (g *guard) slot() (market.Slot, error) { return g.cfg.Slots.Now(time.Now()) }

// panel speaks to all guardians of a ward.
func (g *guard) panel(w Ward) *guardian.Panel {
	return guardian.NewPanel(guardian.PanelConfig{
		Host: g.cfg.Host, Genesis: g.cfg.Genesis, Key: g.cfg.Key, Charter: w.Charter, Members: w.Members,
		Local: g.local, Slots: g.slot, Epoch: w.Epoch, Grant: w.Grant,
	})
}

// Service guards jobs for one peer. New starts nothing; Run does.
type Service struct {
	*guard
	wards   *register
	doors   *admission
	keeper  *keeper
	running *tasks
}

// New reads the wards of an earlier process.
func New(ctx context.Context, cfg Config) (*Service, error) {
	g := &guard{
		cfg: cfg, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(), self: cfg.Key.Key(),
		timing: guardian.TimingOf(cfg.Genesis),
	}
	s := &Service{guard: g, wards: &register{guard: g}, running: &tasks{}}
	g.local, g.files = s, &fetcher{guard: g, tasks: s.running}
	s.doors = &admission{guard: g, wards: s.wards, at: g.connectedFrom}
	s.keeper = &keeper{guard: g, wards: s.wards, tasks: s.running}
	if err := s.wards.load(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// HandTo sets the supervisor of the jobs that this peer takes over. It is called before Run.
func (s *Service) HandTo(to Supervisor) { s.supervisor = to }

// Run guards until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	for _, w := range s.wards.all() {
		w.mu.Lock()
		w.heard = time.Now() // no beat could arrive before
		w.mu.Unlock()
	}
	s.running.open(ctx)
	answer := func(ctx context.Context, from peer.ID, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
		k, err := p2p.KeyFromPeerID(from)
		if err != nil {
			return nil, guardian.Refuse(guardian.CodeUnknown, "%v", err)
		}
		return s.Answer(ctx, sign.Key(k), req)
	}
	server := protocol.Guard.Handle(s.cfg.Host, s.tag, answer, stream.Limits{PerPeer: 128, Logger: s.cfg.Log})
	tick := time.NewTicker(max(s.timing.Beat/2, 100*time.Millisecond))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			s.keeper.watch()
		}
	}
	server.Close()
	s.running.close()
	return nil
}

// Answer answers one request, of another peer or of this one.
func (s *Service) Answer(ctx context.Context, from sign.Key, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
	if _, ok := req.Op.(*nodepb.GuardRequest_Offer_); ok {
		return s.doors.offer(from)
	}
	if len(req.Job) != sign.HashSize {
		return nil, malformed("a job of %d bytes", len(req.Job))
	}
	job := sign.Hash(req.Job)
	if e := req.GetEngage(); e != nil {
		return s.engage(ctx, from, job, e)
	}
	unknown := guardian.Refuse(guardian.CodeUnknown, "this peer guards no such job")
	w := s.wards.find(job)
	if w == nil {
		return nil, unknown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.Has(from) { // do not reveal that the job exists
		return nil, unknown
	}
	return w.answer(ctx, from, req)
}

// engage takes a job on. The answer is Done once all data to supervise the job is stored. A paid guardian fetches
// nothing before its wage is on chain. Until then it answers Done only if Complete is not set.
func (s *Service) engage(
	ctx context.Context, from sign.Key, job sign.Hash, e *nodepb.GuardRequest_Engage,
) (*nodepb.GuardReply, error) {
	next, err := s.doors.wardOf(from, job, e)
	if err != nil {
		return nil, err
	}
	w, err := s.doors.admit(ctx, next)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	ready, backed := w.Ready, w.Unbacked.IsZero()
	fetched := s.files.fetch(w)
	w.mu.Unlock()
	switch {
	case !backed && !e.Complete:
		return done(), nil
	case !backed:
		return nil, guardian.Refuse(guardian.CodeFetching, "this peer's wage is not on chain yet")
	}
	if !ready {
		select {
		case <-fetched:
		case <-ctx.Done():
		case <-time.After(protocol.QuickAnswer / 2):
		}
		w.mu.Lock()
		ready = w.Ready
		w.mu.Unlock()
	}
	if !ready {
		return nil, guardian.Refuse(guardian.CodeFetching, "the job's files are on their way")
	}
	return done(), nil
}

// Jobs returns the charters of the guarded jobs that are not dismissed, in no order.
func (s *Service) Jobs() []guardian.Charter {
	var out []guardian.Charter
	for _, w := range s.wards.values() {
		if !w.Dismissed {
			out = append(out, w.Charter)
		}
	}
	return out
}

// Wards are the jobs that this peer guards, in no order. They include dismissed ones with guardians that may still be
// paid.
func (s *Service) Wards() []Ward { return s.wards.values() }

// Escrows are those of the jobs that this peer guards.
func (s *Service) Escrows() []sign.Key {
	var out []sign.Key
	for _, w := range s.wards.values() {
		out = append(out, w.Escrows...)
	}
	return out
}

// State returns the last state that a job's supervisor reported. It reports false if there is none or the job was
// dismissed.
func (s *Service) State(job sign.Hash) (guardian.State, bool) {
	w := s.wards.find(job)
	if w == nil {
		return guardian.State{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == nil {
		return guardian.State{}, false
	}
	return w.state.State, true
}

// Guarded returns this peer's ward of a job, and a panel of its guardians to read the standing or to sign the wage. The
// caller closes the panel. It returns false for an unknown or deleted job.
func (s *Service) Guarded(job sign.Hash) (Ward, *guardian.Panel, bool) {
	w := s.wards.find(job)
	if w == nil {
		return Ward{}, nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Ward, s.panel(w.Ward), true
}

// Blobs are the files of the jobs that are guarded.
func (s *Service) Blobs() map[cid.Cid]bool {
	out := map[cid.Cid]bool{}
	for _, w := range s.wards.all() {
		w.mu.Lock()
		files := w.needed()
		w.mu.Unlock()
		for _, f := range files {
			out[f.CID] = true
		}
	}
	return out
}
