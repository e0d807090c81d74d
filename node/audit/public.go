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
	WindowSlots uint64
	Slot        func() (market.Slot, error)
	Blocks      chain.Blocks
	// Roster reads the set that committees are drawn from, as it is now.
	Roster func(ctx context.Context) (audit.Roster, error)
}

// Public is the Sight of a peer on a chain. It asks for each fact once.
type Public struct {
	cfg PublicConfig

	mu      sync.Mutex
	beacons map[audit.Window]audit.Beacon
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

// NewPublic makes the sight of a peer.
func NewPublic(cfg PublicConfig) (*Public, error) {
	if cfg.WindowSlots == 0 {
		return nil, ErrNoAudits
	}
	return &Public{cfg: cfg, beacons: map[audit.Window]audit.Beacon{}, rosters: map[audit.Window]seen{}, asking: map[audit.Window]chan struct{}{}}, nil
}

// Window is the window now, and the slot.
func (p *Public) Window() (audit.Window, market.Slot, error) {
	s, err := p.cfg.Slot()
	return audit.WindowOf(s, p.cfg.WindowSlots), s, err
}

// Beacon is the hash of the window's first final block. chain.ErrNotFound while there is none.
func (p *Public) Beacon(ctx context.Context, w audit.Window) (audit.Beacon, error) {
	p.mu.Lock()
	b, known := p.beacons[w]
	p.mu.Unlock()
	if known {
		return b, nil
	}
	block, err := p.cfg.Blocks.Block(ctx, w.First(p.cfg.WindowSlots))
	if err != nil {
		return audit.Beacon{}, err
	}
	if audit.WindowOf(block.Slot, p.cfg.WindowSlots) != w {
		return audit.Beacon{}, fmt.Errorf("window %d has no block: %w", w, chain.ErrNotFound)
	}
	b = audit.Beacon{Source: audit.SlotHash, Round: uint64(block.Slot), Value: block.Hash}
	p.mu.Lock()
	defer p.mu.Unlock()
	for old := range p.beacons { // any but those that datasets are made of
		if len(p.beacons) < maxBeacons {
			break
		}
		if old != audit.EraOf(w) {
			delete(p.beacons, old)
		}
	}
	p.beacons[w] = b
	return b, nil
}

// Roster is the set as this peer read it first in the window.
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
	r, err := p.cfg.Roster(ctx)
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
