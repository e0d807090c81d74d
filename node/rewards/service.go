package rewards

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
)

var (
	// ErrRoot means that a ballot's root is not the root of its table.
	ErrRoot = errors.New("the ballot's root is not that of its table")
	// ErrShared reports that a table divides another sum than the available one.
	ErrShared = errors.New("the table divides something else than there is")
	// ErrNoDocument reports that a peer does not have a document.
	ErrNoDocument = errors.New("no such document")
)

// Sight is a peer's view of windows; node/audit's.
type Sight interface {
	Window() (audit.Window, market.Slot, error)
	// Seen is the data to check certificates of a window that has begun: chain.ErrNotFound while it has no beacon.
	Seen(ctx context.Context, w audit.Window) (audit.Seen, error)
	Rules() audit.Rules
	// Recent is the last known windows with an audit.
	Recent() (audit.Recent, error)
}

// Peers requests a document of at most most bytes from another peer.
type Peers interface {
	Read(ctx context.Context, from sign.Key, d Document, most int) ([]byte, error)
}

// Config is the configuration of a Service; all of it is required, except fields with a stated meaning of nil.
type Config struct {
	Genesis market.Genesis
	Key     sign.Key // of this peer, which pays fees
	Chain   Chain
	Sight   Sight
	Peers   Peers
	Store   journal.Store
	// Records are the newest records of this peer's own units; nil: it sells nothing.
	Records func() []audit.Record
	// Wards are the escrows that this peer signs vouchers of as a guardian; nil: none.
	Wards func() []sign.Key
	// Every is the interval of the loop.
	Every time.Duration
	Log   *slog.Logger
}

// Service is a peer's part in rewards. New starts nothing; Run does.
type Service struct {
	*gatherer

	turn chan struct{} // holds one token during a pass

	mu      sync.Mutex
	status  Status
	aTurn   time.Duration       // how long a turn takes, once it is known
	trouble map[subject]string  // why an epoch's rewards wait
	refused map[sign.Key]string // ballots that this peer does not confirm, and why
	done    map[subject]bool    // accepted, and nothing of it is owed to this peer
}

// subject is an epoch's rewards of one source.
type subject struct {
	epoch  uint64
	source uint8
}

// New makes the service.
func New(cfg Config) *Service {
	a := &archive{cfg: cfg, keep: newKeep(cfg.Store), windows: map[audit.Window]audit.Seen{}}
	return &Service{
		gatherer: &gatherer{archive: a, gathered: map[uint64]*asked{}}, turn: make(chan struct{}, 1),
		trouble: map[subject]string{}, refused: map[sign.Key]string{}, done: map[subject]bool{},
	}
}

// maxBehind is the largest number of past epochs that are considered: a month may have more.
const maxBehind = 32

// Run reads the chain and does the due work until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	said := ""
	for ctx.Err() == nil {
		text := ""
		if err := s.Look(ctx); err != nil && ctx.Err() == nil {
			if text = err.Error(); text != said {
				s.cfg.Log.Warn("rewards wait", "err", err)
			}
		}
		said = text
		select {
		case <-ctx.Done():
		case <-time.After(s.pace()):
		}
	}
	return nil
}

// looksInTurn is the least number of this peer's passes in a turn: it has to see the ballot, to fetch the certificates
// behind it, and to vote.
const looksInTurn = 8

// pace returns the time until the next pass.
func (s *Service) pace() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aTurn > 0 {
		return min(s.cfg.Every, s.aTurn/looksInTurn)
	}
	return s.cfg.Every
}

// look is the state of one pass.
type look struct {
	now      market.Slot
	any      bool   // epoch is an ended epoch
	from     uint64 // oldest epoch of the pass
	last     uint64 // newest ended epoch
	payouts  map[subject]account.Payout
	network  account.Network
	peers    []account.Provider
	mine     *account.Provider // this peer's registration; nil: none
	ballots  map[sign.Key]account.Ballot
	holdings map[uint8]uint64 // by source
}

// Look does all work that is due.
func (s *Service) Look(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	l, err := s.see(ctx)
	if err != nil {
		return err
	}
	const most = uint64(time.Hour / time.Millisecond)
	s.mu.Lock()
	turn := min(rewards.TurnSlots(l.network.Params.Votes), most) * min(s.cfg.Genesis.SlotMillis, most)
	s.aTurn = time.Duration(turn) * time.Millisecond
	s.mu.Unlock()
	if !l.network.Params.Votes.On() || s.cfg.Genesis.AuditSlots == 0 {
		return s.publish(ctx, l)
	}
	if err := s.note(ctx); err != nil {
		return err
	}
	errs := []error{s.noteWards(ctx, l)}
	s.mu.Lock()
	maps.DeleteFunc(s.refused, func(at sign.Key, _ string) bool { _, there := l.ballots[at]; return !there })
	s.mu.Unlock()
	for epoch := l.from; l.any && epoch <= l.last; epoch++ {
		for source := range l.sources() {
			of := subject{epoch, source}
			if l.mine == nil || s.isDone(of) {
				continue
			}
			err := s.epoch(ctx, l, of)
			s.mu.Lock()
			delete(s.trouble, of)
			if err != nil {
				s.trouble[of] = err.Error()
			}
			s.mu.Unlock()
			if err != nil && !errors.Is(err, rewards.ErrNothing) {
				errs = append(errs, fmt.Errorf("epoch %d, source %d: %w", epoch, source, err))
			}
		}
	}
	if l.any {
		errs = append(errs, s.keep.forget(ctx, l.from, l.network.Params.Votes, s.cfg.Genesis.AuditSlots))
	}
	errs = append(errs, s.tidy(ctx, l), s.publish(ctx, l))
	return errors.Join(errs...)
}

// see reads the chain.
func (s *Service) see(ctx context.Context) (*look, error) {
	n, err := s.cfg.Chain.Network(ctx)
	if err != nil {
		return nil, err
	}
	l := &look{network: n, holdings: map[uint8]uint64{}, payouts: map[subject]account.Payout{}}
	if l.now, err = s.cfg.Chain.Slot(ctx); err != nil || !n.Params.Votes.On() {
		return l, err
	}
	if l.peers, err = s.cfg.Chain.Providers(ctx); err != nil {
		return nil, err
	}
	for _, p := range l.peers {
		if p.Peer == s.cfg.Key {
			l.mine = &p
		}
	}
	if l.ballots, err = s.cfg.Chain.Ballots(ctx); err != nil {
		return nil, err
	}
	if l.last, l.any = rewards.Last(n.Params.Votes, l.now); l.any {
		l.from = l.last + 1 - min(uint64(n.Params.Votes.EpochsOfMonth), maxBehind, l.last+1)
	}
	for source := range l.sources() {
		if source == 0 || l.counts() {
			if l.holdings[source], err = s.cfg.Chain.Holds(ctx, s.source(l, source)); err != nil {
				return nil, err
			}
		}
		if !l.any {
			continue
		}
		paid, err := s.cfg.Chain.Payouts(ctx, source, l.from, l.last)
		if err != nil {
			return nil, err
		}
		for epoch, p := range paid {
			l.payouts[subject{epoch, source}] = p
		}
	}
	return l, nil
}

// sources are the numbers of the sources of rewards.
func (l *look) sources() iter.Seq[uint8] {
	return func(yield func(uint8) bool) {
		for i := range 1 + len(l.network.Params.Mints) {
			if !yield(uint8(i)) {
				return
			}
		}
	}
}

// source returns the account that rewards of a source are paid from, and the mint of their token.
func (s *Service) source(l *look, source uint8) sign.Key {
	if source == 0 {
		return account.EmissionAddress(s.cfg.Genesis.Program, s.cfg.Genesis.Escrow)
	}
	return account.PoolAddress(s.cfg.Genesis.Program, s.cfg.Genesis.Escrow, l.mint(source))
}

func (l *look) mint(source uint8) sign.Key {
	if source == 0 {
		return l.network.Params.StakeMint
	}
	return l.network.Params.Mints[source-1].Mint
}

// payout is a peer key's payout wallet; slashed peers have none.
func (l *look) payout(peer sign.Key) (sign.Key, bool) {
	i := slices.IndexFunc(l.peers, func(p account.Provider) bool { return !p.WasSlashed && p.Peer == peer })
	if i < 0 {
		return sign.Key{}, false
	}
	return l.peers[i].Payout, true
}

// counts reports whether this peer is a voter.
func (l *look) counts() bool {
	return l.mine != nil && l.mine.Bonded > 0 && l.network.Bonded >= l.network.Params.Votes.LeastBonded
}

// address returns the address of a registration.
func (s *Service) address(p account.Provider) sign.Key {
	return account.ProviderAddress(s.cfg.Genesis.Program, s.cfg.Genesis.Escrow, p.Peer)
}

// epoch does the next thing about one epoch's rewards of one source.
func (s *Service) epoch(ctx context.Context, l *look, of subject) error {
	if p, accepted := l.payouts[of]; accepted {
		if err := s.claim(ctx, l, of, p); err != nil {
			return err
		}
		s.mu.Lock()
		s.done[of] = true
		s.mu.Unlock()
		return nil
	}
	e, err := rewards.EpochOf(l.network.Params.Votes, s.cfg.Genesis.AuditSlots, of.epoch)
	if err != nil {
		return err
	}
	if uint64(l.now) < l.network.Params.Votes.EpochEnd(of.epoch)+s.grace() || !l.counts() {
		return nil
	}
	return s.decide(ctx, l, of, e)
}

func (s *Service) isDone(of subject) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[of]
}

// grace is how many slots after an epoch it is counted, the time of an audit on average: the last window's audits have
// ended, and their certificates are kept.
func (s *Service) grace() uint64 {
	return uint64(audit.NewInstants(s.cfg.Genesis).Audits(1)) * s.cfg.Genesis.AuditSlots
}

// note keeps data that passes: the beacon and roster of each window with an audit, and the certificates of this peer's
// own units.
func (s *Service) note(ctx context.Context) error {
	recent, err := s.cfg.Sight.Recent()
	if err != nil {
		return err
	}
	for _, w := range []audit.Window{recent.Before, recent.Last} {
		if _, err := s.keep.seen(ctx, w); !errors.Is(err, store.ErrNotFound) {
			if err != nil {
				return err
			}
			continue
		}
		seen, err := s.cfg.Sight.Seen(ctx, w)
		if errors.Is(err, chain.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.keep.see(ctx, w, seen); err != nil {
			return err
		}
	}
	if s.cfg.Records == nil {
		return nil
	}
	for _, r := range s.cfg.Records() {
		if err := s.keep.add(ctx, []audit.Certificate{r.Certificate()}); err != nil {
			return err
		}
	}
	return nil
}
