package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/drand"
)

// ErrNoAudits says that the network's genesis has no windows.
var ErrNoAudits = errors.New("nothing is audited on this network: its genesis has no audit_slots")

// PublicConfig is what a Public needs; all of it but what says where it is not.
type PublicConfig struct {
	Genesis market.Genesis
	Slot    func() (market.Slot, error)
	Blocks  chain.Blocks // of networks whose beacons are slot hashes
	// Round is a round's signature, taken only when check does; of networks whose beacons are drand's.
	Round func(ctx context.Context, round uint64, check func(drand.Signature) error) (drand.Signature, error)
	// Roster reads the set that committees of a window that has begun are drawn from.
	Roster func(ctx context.Context, w audit.Window) (audit.Roster, error)
	Now    func() time.Time
	// Checks says that it checks the beacons of others and draws none: a light client's, which asks no relay.
	Checks bool
}

// Public is the Sight of a peer: of a chain, of drand, or of the peers that it finds. It asks for each fact once.
type Public struct {
	cfg   PublicConfig
	slots uint64 // of a window
	rules *audit.Beacons

	mu      sync.Mutex
	blocks  map[audit.Window]audit.Beacon
	begun   map[audit.Window]began
	drawn   map[audit.Window]Drawn // of drand
	rosters map[audit.Window]seen
	asking  map[audit.Window]chan struct{} // closed when a roster being read was read
}

// began is when a window began, as far as this peer can tell.
type began struct {
	at     time.Time
	within time.Duration
}

type seen struct {
	roster audit.Roster
	at     time.Time
}

const (
	// maxBeacons bounds the beacons that are remembered.
	maxBeacons = 64
	// rosterFresh is for how long a roster is taken for that of its window, when it was read in another.
	rosterFresh = time.Minute
	// clockError is how far the clocks of two honest peers may be apart, with what they know of the slot.
	clockError = 5 * time.Second
)

// NewPublic makes the sight of a peer. ErrNoAudits, drand.ErrKey, or what the network's beacons need and is not there.
func NewPublic(cfg PublicConfig) (*Public, error) {
	if cfg.Genesis.AuditSlots == 0 {
		return nil, ErrNoAudits
	}
	rules, err := audit.NewBeacons(cfg.Genesis)
	if err != nil {
		return nil, err
	}
	switch {
	case rules.Source() == audit.SlotHash && cfg.Blocks == nil:
		return nil, errors.New("the network's audits are drawn by slot hashes, and its ledger has no blocks; its genesis needs another audit_beacon")
	case rules.Source() == audit.Drand && cfg.Round == nil && !cfg.Checks:
		return nil, errors.New("the network's audits are drawn by drand, and there is no relay to ask")
	}
	return &Public{
		cfg: cfg, slots: cfg.Genesis.AuditSlots, rules: rules, blocks: map[audit.Window]audit.Beacon{}, begun: map[audit.Window]began{}, drawn: map[audit.Window]Drawn{},
		rosters: map[audit.Window]seen{}, asking: map[audit.Window]chan struct{}{},
	}, nil
}

// Window is the window now, and the slot.
func (p *Public) Window() (audit.Window, market.Slot, error) {
	s, err := p.cfg.Slot()
	return audit.WindowOf(s, p.slots), s, err
}

// Rules check the network's beacons.
func (p *Public) Rules() *audit.Beacons { return p.rules }

// Source is where the network's beacons come from.
func (p *Public) Source() audit.Source { return p.rules.Source() }

// Instants are when the audits of a window begin.
func (p *Public) Instants() audit.Instants { return p.rules.Instants() }

// Beacon is the beacon of a window that has begun. chain.ErrNotFound while there is none. Where peers make beacons, there is none here.
func (p *Public) Beacon(ctx context.Context, w audit.Window) (Drawn, error) {
	switch p.rules.Source() {
	case audit.SlotHash:
		b, err := p.Block(ctx, w)
		if err != nil {
			return Drawn{}, err
		}
		era, err := p.Block(ctx, audit.EraOf(w))
		if err != nil {
			return Drawn{}, fmt.Errorf("the beacon of the datasets: %w", err)
		}
		return Drawn{Beacon: b, Era: era}, nil
	case audit.Drand:
		return p.drand(ctx, w)
	}
	return Drawn{}, fmt.Errorf("peers make the beacons of this network: %w", chain.ErrNotFound)
}

// Check says whether a beacon is a window's for a provider, and gives the one that its datasets are made of.
func (p *Public) Check(ctx context.Context, w audit.Window, provider sign.Key, b audit.Beacon, proof []byte) (audit.Beacon, error) {
	switch p.rules.Source() {
	case audit.SlotHash:
		own, err := p.Beacon(ctx, w)
		switch {
		case err != nil:
			return audit.Beacon{}, err
		case own.Beacon != b || len(proof) != 0:
			return audit.Beacon{}, &audit.RuleError{Rule: audit.RuleBeacon, Detail: fmt.Sprintf("another beacon: this peer has that of slot %d", own.Round)}
		}
		return own.Era, nil
	case audit.Drand:
		return p.checkDrand(w, provider, b, proof)
	}
	era, err := p.rules.Check(provider, w, b, proof)
	if err != nil {
		return audit.Beacon{}, err
	}
	roster, err := p.Roster(ctx, w)
	if err == nil {
		err = audit.CheckRevealers(roster, w, provider, audit.RevealersIn(proof))
	}
	return era, err
}

// Seen is what certificates of a window that has begun are held against. chain.ErrNotFound while there is no beacon.
func (p *Public) Seen(ctx context.Context, w audit.Window) (s audit.Seen, err error) {
	now, _, err := p.Window()
	switch {
	case err != nil:
		return s, err
	case now < w:
		return s, fmt.Errorf("window %d has not begun: %w", w, chain.ErrNotFound)
	}
	switch p.rules.Source() {
	case audit.SlotHash:
		d, err := p.Beacon(ctx, w)
		if err != nil {
			return s, err
		}
		s.Beacon, s.Era = d.Beacon, d.Era
	case audit.Drand:
		b, err := p.beginning(w)
		if err != nil {
			return s, err
		}
		s.Began, s.Within = uint64(max(b.at.Unix(), 0)), uint64(b.within/time.Second)+1
	case audit.ByReveal: // each provider's is another
	}
	s.Roster, err = p.Roster(ctx, w)
	return s, err
}

// Block is the hash of a window's first final block. chain.ErrNotFound while there is none.
func (p *Public) Block(ctx context.Context, w audit.Window) (audit.Beacon, error) {
	p.mu.Lock()
	b, known := p.blocks[w]
	p.mu.Unlock()
	if known {
		return b, nil
	}
	block, err := p.cfg.Blocks.Block(ctx, w.First(p.slots))
	if err != nil {
		return audit.Beacon{}, err
	}
	if audit.WindowOf(block.Slot, p.slots) != w {
		return audit.Beacon{}, fmt.Errorf("window %d has no block: %w", w, chain.ErrNotFound)
	}
	b = audit.Beacon{Source: audit.SlotHash, Round: uint64(block.Slot), Value: block.Hash}
	p.mu.Lock()
	defer p.mu.Unlock()
	for old := range p.blocks { // any but those that datasets are made of
		if len(p.blocks) < maxBeacons {
			break
		}
		if old != audit.EraOf(w) {
			delete(p.blocks, old)
		}
	}
	p.blocks[w] = b
	return b, nil
}

// beginning is when a window that has begun did.
func (p *Public) beginning(w audit.Window) (began, error) {
	window, s, err := p.Window()
	if err != nil {
		return began{}, err
	}
	if window < w {
		return began{}, fmt.Errorf("window %d has not begun: %w", w, chain.ErrNotFound)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b, known := p.begun[w]; known {
		return b, nil
	}
	ago := time.Duration(uint64(s-w.First(p.slots))*p.cfg.Genesis.SlotMillis) * time.Millisecond
	b := began{p.cfg.Now().Add(-ago), clockError + ago/audit.PaceError}
	for old := range p.begun {
		if old+1 < w {
			delete(p.begun, old)
		}
	}
	p.begun[w] = b
	return b, nil
}

// drand is the round of a window, once it is there.
func (p *Public) drand(ctx context.Context, w audit.Window) (Drawn, error) {
	p.mu.Lock()
	d, known := p.drawn[w]
	p.mu.Unlock()
	if known {
		return d, nil
	}
	if p.cfg.Round == nil {
		return Drawn{}, errors.New("this peer asks no relay of drand: it checks beacons and draws none")
	}
	b, err := p.beginning(w)
	if err != nil {
		return Drawn{}, err
	}
	round := p.rules.Schedule().After(uint64(max(b.at.Unix(), 0)))
	if at := p.rules.Schedule().Time(round); int64(at) > p.cfg.Now().Unix() {
		return Drawn{}, fmt.Errorf("round %d of drand comes later: %w", round, chain.ErrNotFound)
	}
	var own, era drand.Signature
	for _, x := range []struct {
		to    *drand.Signature
		round uint64
	}{{&own, round}, {&era, p.rules.Era(round)}} {
		*x.to, err = p.cfg.Round(ctx, x.round, func(s drand.Signature) error { return p.rules.CheckRound(x.round, s) })
		if err != nil {
			return Drawn{}, err
		}
	}
	if d.Beacon, d.Era, d.Proof, err = p.rules.Rounds(round, own, era); err != nil {
		return Drawn{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for old := range p.drawn {
		if old+1 < w {
			delete(p.drawn, old)
		}
	}
	p.drawn[w] = d
	return d, nil
}

func (p *Public) checkDrand(w audit.Window, provider sign.Key, b audit.Beacon, proof []byte) (audit.Beacon, error) {
	began, err := p.beginning(w)
	if err != nil {
		return audit.Beacon{}, err
	}
	at, within := uint64(max(began.at.Unix(), 0)), uint64(began.within/time.Second)
	if !p.rules.Schedule().Fits(b.Round, at, within) {
		return audit.Beacon{}, &audit.RuleError{Rule: audit.RuleTime, Detail: fmt.Sprintf("another beacon: window %d is drawn by round %d of drand, not %d", w, p.rules.Schedule().After(at), b.Round)}
	}
	p.mu.Lock()
	own := p.drawn[w]
	p.mu.Unlock()
	if own.Beacon == b && string(own.Proof) == string(proof) {
		return own.Era, nil
	}
	return p.rules.Check(provider, w, b, proof)
}

// Roster is the set of a window, as this peer read it first. Readings may differ by members that left, or bonded less, since the window began.
func (p *Public) Roster(ctx context.Context, w audit.Window) (audit.Roster, error) {
	for {
		p.mu.Lock()
		if s, known := p.rosters[w]; known {
			p.mu.Unlock()
			return s.roster, nil
		}
		wait := p.asking[w]
		if wait == nil {
			p.asking[w] = make(chan struct{})
			p.mu.Unlock()
			return p.readRoster(ctx, w)
		}
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *Public) readRoster(ctx context.Context, w audit.Window) (audit.Roster, error) {
	r, err := p.cfg.Roster(ctx, w)
	if err == nil {
		err = r.Check()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.asking[w])
	delete(p.asking, w)
	if err != nil {
		return nil, err
	}
	for old, s := range p.rosters {
		if old+1 < w && time.Since(s.at) > rosterFresh {
			delete(p.rosters, old)
		}
	}
	p.rosters[w] = seen{r, time.Now()}
	return r, nil
}
