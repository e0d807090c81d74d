package guardian

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/slots"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/stream"
)

// Policy is a peer's policy for guarding jobs.
type Policy struct {
	Accept          bool
	MaxJobs         int           // at a time
	ShareMillionths uint32        // of the largest cost of a job's leases, for all of it; 0: for nothing
	MaxBytes        int64         // of the files of one job
	Longest         time.Duration // a job may be guarded
}

// Config is the configuration of a Service. All of it is required, except fields with a stated meaning of nil.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Signer // of the peer
	Payout  sign.Key    // wallet of the peer's owner
	Policy  Policy
	Store   journal.Store
	Slots   *slots.Clock
	Log     *slog.Logger

	// Unseal opens a box that was sealed to Key.
	Unseal func(p sealed.Purpose, box []byte) ([]byte, error)
	// Backed returns nil once the wage of this peer for a job is on chain where the job's state says; nil: that is not
	// asked.
	Backed func(ctx context.Context, w Ward, state []byte) error
	// Fetch brings a file from a peer, and Grant lets a peer read one.
	Fetch work.Fetcher
	Grant func(to peer.ID, c cid.Cid)
	// Drop is called when a job no longer needs a file; nil keeps it.
	Drop func(c cid.Cid)

	// TakeUp is called when this peer begins to supervise a job, and again after a restart; it returns when it has its
	// data. An error is logged, and it is called again.
	TakeUp func(ctx context.Context, t Taken) error
	// Yield is called when another peer supervises a job under a higher epoch: nothing more may be done for it. It must
	// not wait.
	Yield func(job sign.Hash, epoch uint64)
}

// Taken is a job that this peer supervises from now on.
type Taken struct {
	Charter
	Key    sign.Private // the job's
	File   []byte       // as the owner engaged it
	Files  []File       // likewise; all are here
	Until  time.Time
	State  *State  // newest; nil: the owner never said
	Leases []Lease // newest of each
	// Panel speaks to the guardians under the granted epoch. The new supervisor closes it.
	Panel *Panel
}

// Records of the journal.
var (
	wards    = journal.Define[sign.Hash, Ward]("ward")         // by job
	states   = journal.Define[sign.Hash, said]("wardstate")    // by job
	leases   = journal.Define[string, keptRecord]("wardlease") // by job/lease
	receipts = journal.Define[string, []byte]("wardreceipt")   // verify.Receipt by job/lease/number
)

// Service guards jobs for one peer. New starts nothing; Run does.
type Service struct {
	cfg    Config
	domain sign.Domain
	tag    string
	self   sign.Key
	timing Timing
	// at is the network that a peer is connected from; not valid: none, or this machine's.
	at func(sign.Key) netip.Prefix

	admitting sync.Mutex // one job at a time; held before the others
	mu        sync.Mutex
	wards     map[sign.Hash]*ward

	runMu   sync.Mutex
	running context.Context // of Run; nil before and after
	wg      sync.WaitGroup  // of Run's goroutines
}

// ward is a Ward with its other records in the journal, and with data that a restart forgets.
type ward struct {
	mu sync.Mutex
	Ward
	state    *said
	leases   map[market.LeaseID]*kept
	bytes    int // of the leases
	receipts int

	key       *sign.Private // the job's, once opened
	heard     time.Time     // of the supervisor
	asked     time.Time     // when this peer last tried to take over
	granted   time.Time     // when it granted the job to another and has not heard of that yet
	starving  time.Time     // since when it is certain that the supervisor does not pay; zero: it does
	busy      bool          // attend runs
	refreshed bool          // the other guardians were asked for news
	taken     bool          // TakeUp was called for the epoch
	fetching  bool
	fetched   chan struct{} // closed when the last fetch ended
	complete  bool          // all files are here, also those of the state
	tried     time.Time     // when the last fetch ended
	looked    time.Time     // when its wage was last looked for
}

// New reads the wards of an earlier process.
func New(ctx context.Context, cfg Config) (*Service, error) {
	s := &Service{
		cfg: cfg, domain: cfg.Genesis.Domain(), tag: cfg.Genesis.Tag(), self: cfg.Key.Key(),
		timing: TimingOf(cfg.Genesis), wards: map[sign.Hash]*ward{},
	}
	s.at = s.connectedFrom
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// connectedFrom is the network of the address at which this peer is connected to another; one behind a relay has the
// relay's.
func (s *Service) connectedFrom(k sign.Key) netip.Prefix {
	id, err := p2p.PeerIDFromKey(k)
	if err != nil || s.cfg.Host == nil {
		return netip.Prefix{}
	}
	return admit.NetworkOfPeer(s.cfg.Host.Network(), id)
}

// share is how many jobs one owner may have guarded, and the owners of one network: nobody pays before a job's escrow
// is open.
func (p Policy) share() int { return max(p.MaxJobs/4, 2) }

// unbacked is the number of jobs that may be guarded without wages on chain.
func (p Policy) unbacked() int { return max(p.MaxJobs/2, 1) }

// room refuses an owner, or a network, that has this number already.
func (s *Service) room(owner sign.Key, at netip.Prefix) error {
	most, of, from := s.cfg.Policy.share(), 0, 0
	for _, w := range s.all() {
		w.mu.Lock()
		if !w.Dismissed && w.Owner == owner {
			of++
		}
		if !w.Dismissed && at.IsValid() && w.From == at {
			from++
		}
		w.mu.Unlock()
	}
	if of >= most || from >= most {
		return refuse(CodeFull, "this peer guards %d jobs of one owner, or of one network, which is all it does", most)
	}
	return nil
}

// Run guards until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	for _, w := range s.all() {
		w.mu.Lock()
		w.heard = time.Now() // nobody could be heard before
		w.mu.Unlock()
	}
	s.runMu.Lock()
	s.running = ctx
	s.runMu.Unlock()
	answer := func(ctx context.Context, from peer.ID, req *nodepb.GuardRequest) (*nodepb.GuardReply, error) {
		k, err := p2p.KeyFromPeerID(from)
		if err != nil {
			return nil, refuse(CodeUnknown, "%v", err)
		}
		return s.answer(ctx, sign.Key(k), req)
	}
	server := protocol.Guard.Handle(s.cfg.Host, s.tag, answer, stream.Limits{PerPeer: 128, Logger: s.cfg.Log})
	tick := time.NewTicker(max(s.timing.Beat/2, 100*time.Millisecond))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			s.watch()
		}
	}
	server.Close()
	s.runMu.Lock()
	s.running = nil
	s.runMu.Unlock()
	s.wg.Wait()
	return nil
}

// start runs f beside Run, which waits for it; not when Run ends.
func (s *Service) start(f func(ctx context.Context)) bool {
	s.runMu.Lock()
	defer s.runMu.Unlock()
	ctx := s.running
	if ctx == nil || ctx.Err() != nil {
		return false
	}
	s.wg.Go(func() { f(ctx) })
	return true
}

// Jobs are those that this peer guards, not yet dismissed, in no order.
func (s *Service) Jobs() []Charter {
	var out []Charter
	for _, w := range s.all() {
		w.mu.Lock()
		if !w.Dismissed {
			out = append(out, w.Charter)
		}
		w.mu.Unlock()
	}
	return out
}

// Wards are the jobs that this peer guards, in no order. They include dismissed ones with guardians that may still be
// paid.
func (s *Service) Wards() []Ward {
	var out []Ward
	for _, w := range s.all() {
		w.mu.Lock()
		out = append(out, w.Ward)
		w.mu.Unlock()
	}
	return out
}

// Escrows are those of the jobs that this peer guards.
func (s *Service) Escrows() []sign.Key {
	var out []sign.Key
	for _, w := range s.all() {
		w.mu.Lock()
		out = append(out, w.Escrows...)
		w.mu.Unlock()
	}
	return out
}

// State is how a job stands as its supervisor said last; false if that is not known, also after it was dismissed.
func (s *Service) State(job sign.Hash) (State, bool) {
	w := s.find(job)
	if w == nil {
		return State{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == nil {
		return State{}, false
	}
	return w.state.State, true
}

// Guarded is this peer's ward of a job, and a panel of all its guardians, which the caller closes: to read the job's
// standing, or to have the wage signed. It returns false if there is no such job, also after it was dismissed and
// forgotten.
func (s *Service) Guarded(job sign.Hash) (Ward, *Panel, bool) {
	w := s.find(job)
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
	for _, w := range s.all() {
		w.mu.Lock()
		files := w.Files
		if w.state != nil {
			files = slices.Concat(files, w.state.Files)
		}
		w.mu.Unlock()
		for _, f := range files {
			out[f.CID] = true
		}
	}
	return out
}

func (s *Service) all() []*ward {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.wards))
}

func (s *Service) find(job sign.Hash) *ward {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wards[job]
}

func (s *Service) panel(w Ward) *Panel {
	return NewPanel(PanelConfig{
		Host: s.cfg.Host, Genesis: s.cfg.Genesis, Key: s.cfg.Key, Charter: w.Charter, Members: w.Members,
		Local: s, Slots: s.slot, Epoch: w.Epoch, Grant: w.Grant,
	})
}
