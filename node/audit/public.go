package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
)

// ErrNoAudits says that the network's genesis has no windows.
var ErrNoAudits = errors.New("nothing is audited on this network: its genesis has no audit_slots")

// PublicConfig is what a Public needs; all of it.
type PublicConfig struct {
	Genesis market.Genesis
	Slot    func() (market.Slot, error)
	Blocks  chain.Blocks
	// Roster reads the set that committees of a window that has begun are drawn from.
	Roster func(ctx context.Context, w audit.Window) (audit.Roster, error)
}

// Public is the Sight of a peer. It asks the chain for each fact once.
type Public struct {
	cfg   PublicConfig
	slots uint64 // of a window
	rules audit.Rules

	mu      sync.Mutex
	blocks  map[audit.Window]audit.Beacon
	rosters map[audit.Window]seen
	asking  map[audit.Window]chan struct{} // closed when a roster being read was read
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
)

// NewPublic makes the sight of a peer. ErrNoAudits.
func NewPublic(cfg PublicConfig) (*Public, error) {
	if cfg.Genesis.AuditSlots == 0 {
		return nil, ErrNoAudits
	}
	if cfg.Blocks == nil {
		return nil, errors.New("audits are drawn by the blocks of a chain, and the network's ledger has none")
	}
	return &Public{
		cfg: cfg, slots: cfg.Genesis.AuditSlots, rules: audit.NewRules(cfg.Genesis), blocks: map[audit.Window]audit.Beacon{},
		rosters: map[audit.Window]seen{}, asking: map[audit.Window]chan struct{}{},
	}, nil
}

// Window is the window now, and the slot.
func (p *Public) Window() (audit.Window, market.Slot, error) {
	s, err := p.cfg.Slot()
	return audit.WindowOf(s, p.slots), s, err
}

// Rules check what is public of the network's audits.
func (p *Public) Rules() audit.Rules { return p.rules }

// Instants are when the audits of a window begin.
func (p *Public) Instants() audit.Instants { return p.rules.Instants() }

// Beacon is the beacon of a window that has begun, and that of its datasets. chain.ErrNotFound while there is none.
func (p *Public) Beacon(ctx context.Context, w audit.Window) (Drawn, error) {
	b, err := p.Block(ctx, w)
	if err != nil {
		return Drawn{}, err
	}
	era, err := p.Block(ctx, audit.EraOf(w))
	if err != nil {
		return Drawn{}, fmt.Errorf("the beacon of the datasets: %w", err)
	}
	return Drawn{Beacon: b, Era: era}, nil
}

// Check says whether a beacon is a window's, and gives the one that its datasets are made of.
func (p *Public) Check(ctx context.Context, w audit.Window, b audit.Beacon) (era audit.Beacon, err error) {
	own, err := p.Beacon(ctx, w)
	switch {
	case err != nil:
		return audit.Beacon{}, err
	case own.Beacon != b:
		return audit.Beacon{}, &audit.RuleError{Rule: audit.RuleBeacon, Detail: fmt.Sprintf("another beacon: this peer has that of slot %d", own.Slot)}
	}
	return own.Era, nil
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
	d, err := p.Beacon(ctx, w)
	if err != nil {
		return s, err
	}
	s.Beacon, s.Era = d.Beacon, d.Era
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
	b = audit.Beacon{Slot: block.Slot, Value: block.Hash}
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
