package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/shelf"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
)

// Config is the configuration of a Service; all of it is required, except fields with a stated meaning of nil.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Signer
	Sight   sight.Sight
	Shelf   *shelf.Shelf
	Results Results
	// Seller is optional; if nil, this peer sells nothing and only judges others.
	Seller Seller
	// Mask makes a peer for a canary, which is closed after it. It is optional; if nil, no canaries are planted.
	Mask func() (Mask, error)
	// Anchor is the chain that keeps the roots of this peer's records, polled every AnchorPoll. It is optional; if nil,
	// no records are anchored.
	Anchor     chain.MemoLedger
	AnchorPoll time.Duration
	// Fetch requests a proof from a peer by its hash.
	Fetch Fetcher
	// Until returns the time until a slot begins.
	Until func(market.Slot) time.Duration
	Log   *slog.Logger
}

// The types of package shelf that other rooms see.
type (
	Past    = shelf.Past
	Outcome = shelf.Outcome
)

// OpenShelf is shelf.Open.
var OpenShelf = shelf.Open

// Fetcher requests a proof from a peer by its hash.
type Fetcher func(ctx context.Context, from sign.Key, hash sign.Hash) (proof.Content, error)

// Seller is the units of a peer that sells.
type Seller interface {
	// Units returns the units that are not leased, with their devices, and a function that closes these.
	Units(ctx context.Context) (units []Unit, free func(), err error)
	// Show has the offers name the records that are fresh. It is called whenever these may have changed.
	Show(record func(u market.Unit) (sign.Hash, bool))
	// Withdraw stops the sale of units, for the reasons given. It is called again while there are any.
	Withdraw(map[market.UnitID]string)
}

// Results receives this peer's findings about others.
type Results interface {
	// Judged is called with each verdict of this peer about a provider's unit.
	Judged(provider sign.Key, v audit.Verdict)
	// KeepFraud keeps the proof of a fraud that this peer found.
	KeepFraud(ctx context.Context, l audit.Lie) error
	// Refuse keeps this peer's signed statement that a unit failed, before its provider receives it.
	Refuse(audit.Refusal)
}

const (
	// beaconPoll is the polling interval for the first block of a window.
	beaconPoll = time.Second
	// before is the longest time before the instant at which units are reserved and fill their datasets; the limit is a
	// quarter of the window, if shorter.
	before = 20 * time.Second
	// perPeer bounds the steps of one provider that are answered at a time: one for each unit.
	perPeer = MaxUnits + 16
)

// Service audits a peer's own units in every window that has an audit and judges others when it is drawn. NewService
// starts nothing; Run does.
type Service struct {
	cfg    Config
	tag    string
	member *Member
	prover *Prover

	audited chan struct{} // holds one when there may be records to anchor
	turn    chan struct{} // holds one while this peer's units are audited
	mu      sync.Mutex
	began   audit.Window // the window in which this process started, once it is known
	started bool
	done    audit.Window // newest window with a begun audit
	wanted  []chan planted
	cards   map[market.UnitID]market.Card // claimed by this peer's units, by unit
}

// NewService makes the service.
func NewService(cfg Config) *Service {
	s := &Service{
		cfg: cfg, tag: cfg.Genesis.Tag(), turn: make(chan struct{}, 1), audited: make(chan struct{}, 1),
		cards: map[market.UnitID]market.Card{},
	}
	domain := cfg.Genesis.Domain()
	s.member = NewMember(MemberConfig{
		Domain: domain, Key: cfg.Key, WindowSlots: cfg.Genesis.AuditSlots, Sight: cfg.Sight,
		Plan: ByPlan, Now: time.Now, Results: cfg.Results, Log: cfg.Log,
	})
	s.prover = NewProver(ProverConfig{
		Domain: domain, Key: cfg.Key, WindowSlots: cfg.Genesis.AuditSlots, Sight: cfg.Sight,
		Plan: ByPlan, Call: s.call, Wait: s.until, Log: cfg.Log,
		Late: func(c Claim, r audit.Record) error { return r.CheckClass(c.Class, c.Resources) },
	})
	return s
}

// take waits until no unit of this peer is audited. The caller empties s.turn when it is done.
func (s *Service) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Shelf is the record store.
func (s *Service) Shelf() *shelf.Shelf { return s.cfg.Shelf }

func (s *Service) call(ctx context.Context, m sign.Key, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
	id, err := p2p.PeerIDFromKey(m)
	if err != nil {
		return nil, err
	}
	return protocol.Audit.Call(ctx, s.cfg.Host, s.tag, id, req)
}

// Run answers others and audits this peer's units until ctx ends. It returns an error if the journal is broken.
func (s *Service) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.cfg.Shelf.Run(ctx) })
	if s.cfg.Anchor != nil {
		g.Go(func() error { return s.anchors(ctx) })
	}
	g.Go(func() error { return s.follow(ctx) })
	return g.Wait()
}

// follow answers others, and audits this peer's units in each window, until ctx ends.
func (s *Service) follow(ctx context.Context) error {
	answer := func(ctx context.Context, from peer.ID, req *nodepb.AuditRequest) (*nodepb.AuditReply, error) {
		k, err := p2p.KeyFromPeerID(from)
		if err != nil {
			return nil, refuse(CodeUnknown, "%v", err)
		}
		return s.member.Answer(ctx, sign.Key(k), req)
	}
	judge := protocol.Audit.Handle(s.cfg.Host, s.tag, answer, stream.Limits{PerPeer: perPeer, Logger: s.cfg.Log})
	defer judge.Close()
	for ctx.Err() == nil {
		wait := beaconPoll
		if window, _, err := s.cfg.Sight.Window(); err == nil {
			s.mu.Lock()
			if !s.started {
				s.began, s.started = window, true
			}
			due := window > s.began && window > s.done
			s.mu.Unlock()
			s.offer() // fresh records may no longer be so
			var soon time.Duration
			if due && s.cfg.Seller != nil {
				soon = s.soon(ctx, window)
			} else if recent, err := s.cfg.Sight.Recent(); err != nil || recent.Known < window {
				soon = beaconPoll // for the offers
			}
			if due && s.cfg.Seller != nil && soon == 0 {
				if _, err := s.Audit(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ErrTooEarly) {
					s.cfg.Log.Error("this peer's units were not audited", "window", uint64(window), "err", err)
				}
			}
			wait = max(wait, s.cfg.Until((window + 1).First(s.cfg.Genesis.AuditSlots)))
			if soon > 0 {
				wait = soon
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

// until waits until a slot has begun.
func (s *Service) until(ctx context.Context, slot market.Slot) error {
	for {
		_, now, err := s.cfg.Sight.Window()
		if err != nil || now >= slot {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(s.cfg.Until(slot), time.Millisecond)):
		}
	}
}

// ErrNoAudit means that the window's block drew no audit.
var ErrNoAudit = errors.New("this window has no audit")

// next returns the time of the next audit as text for operators.
func (s *Service) next() string {
	in := s.cfg.Sight.Instants()
	if window, _, err := s.cfg.Sight.Window(); in.OneIn <= 1 && err == nil {
		return fmt.Sprintf("the next window begins in %s", s.cfg.Until((window + 1).First(in.Slots)).Round(time.Second))
	}
	every := time.Duration(in.OneIn*in.Slots*in.Millis) * time.Millisecond
	return fmt.Sprintf("one window in %d has an audit, on average one every %s, at unpredictable times",
		in.OneIn, every)
}

// begins is the slot in which this peer gets ready for the audits of a window, and the last in which they may begin.
// chain.ErrNotFound while the beacon is not there that draws them, ErrNoAudit when it drew none.
func (s *Service) begins(ctx context.Context, w audit.Window) (ready, last market.Slot, err error) {
	d, err := s.cfg.Sight.Beacon(ctx, w)
	if errors.Is(err, sight.ErrNoBlock) {
		return 0, 0, fmt.Errorf("window %d: %w: no block", w, ErrNoAudit)
	}
	if err != nil {
		return 0, 0, err
	}
	in := s.cfg.Sight.Instants()
	if !in.Fires(d.Beacon) {
		return 0, 0, fmt.Errorf("window %d: %w", w, ErrNoAudit)
	}
	_, last = in.Span(w, 1, "")
	return in.Of(w) - market.Slot(min(s.cfg.Genesis.SlotsIn(before), s.cfg.Genesis.AuditSlots/4)), last - 1, nil
}

// soon is the time until this peer gets ready for a window's audits; 0 when it is time, or when Audit would return an
// error.
func (s *Service) soon(ctx context.Context, w audit.Window) time.Duration {
	if recent, err := s.cfg.Sight.Recent(); err != nil || recent.Known < w {
		return beaconPoll
	}
	ready, _, err := s.begins(ctx, w)
	switch {
	case errors.Is(err, chain.ErrNotFound):
		return beaconPoll
	case errors.Is(err, ErrNoAudit):
		s.over(w)
		return beaconPoll
	case err != nil:
		return 0
	}
	if _, now, err := s.cfg.Sight.Window(); err != nil || now >= ready {
		return 0
	}
	return max(s.cfg.Until(ready), time.Millisecond)
}

// over notes that this peer gives no further answers in a window.
func (s *Service) over(w audit.Window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = max(s.done, w)
}

// ErrTooEarly reports that this window's audit was begun already, or that this process started in it: a peer with a
// restored journal must not answer a window twice.
var ErrTooEarly = errors.New("this peer's units can be audited in a later window")

// Audit answers the current window with this peer's units, once its beacon is there, and keeps the results.
func (s *Service) Audit(ctx context.Context) ([]Past, error) {
	if err := s.take(ctx); err != nil {
		return nil, err
	}
	defer func() { <-s.turn }()
	if s.cfg.Seller == nil {
		return nil, fmt.Errorf("%w: this peer sells nothing", ErrUnits)
	}
	window, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	units, free, err := s.cfg.Seller.Units(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	defer s.offer()
	if len(units) == 0 {
		return nil, nil
	}
	for i, u := range units {
		units[i].Appeal = s.cfg.Shelf.State().Standing(u.ID).Appealed()
	}
	s.over(window)
	units, canaries := s.plantSome(ctx, units)
	defer canaries()
	if len(units) == 0 {
		return nil, nil
	}
	results, failed := s.prover.Audit(ctx, units)
	if failed != nil {
		results = without(units, failed)
	}
	if err := s.keep(ctx, window, results); err != nil {
		return nil, err
	}
	var out []Past
	for _, p := range s.cfg.Shelf.State().All() {
		if p.Window == window {
			out = append(out, p)
		}
	}
	return out, failed
}

// ready waits until this peer gets ready for the current window's audits. It returns ErrTooEarly, ErrNoAudit or
// ErrInstant if it answers none of them.
func (s *Service) ready(ctx context.Context) (audit.Window, error) {
	window, _, err := s.cfg.Sight.Window()
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	early := !s.started || window <= s.began || window <= s.done
	s.mu.Unlock()
	if early {
		return 0, fmt.Errorf("%w: %s", ErrTooEarly, s.next())
	}
	ready, last, err := s.begins(ctx, window)
	for ; errors.Is(err, chain.ErrNotFound); ready, last, err = s.begins(ctx, window) {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(beaconPoll):
		}
	}
	if errors.Is(err, ErrNoAudit) {
		s.over(window)
		return 0, fmt.Errorf("%w: %s", err, s.next())
	}
	if err == nil {
		err = s.until(ctx, ready)
	}
	if err != nil {
		return 0, err
	}
	if _, now, err := s.cfg.Sight.Window(); err != nil || now > last {
		s.over(window)
		return 0, fmt.Errorf("%w: slot %d, want %d or earlier: %s", ErrInstant, now, last, s.next())
	}
	return window, nil
}
