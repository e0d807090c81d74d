package sight

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
)

// ErrNoAudits means that the network's genesis has no windows.
var ErrNoAudits = errors.New("this network has no audits: audit_slots is missing in the genesis")

// PublicConfig is the configuration of a Public; all of it is required.
type PublicConfig struct {
	Genesis market.Genesis
	Slot    func() (market.Slot, error)
	Blocks  chain.Blocks
	// Roster reads the set that committees of a window that has begun are drawn from.
	Roster func(ctx context.Context, w audit.Window) (audit.Roster, error)
	// Recent requests the last two windows with an audit up to w from other peers, so that fewer blocks have to be
	// read. It is optional; if nil, all blocks are read.
	Recent func(ctx context.Context, w audit.Window) (audit.Recent, error)
	Log    *slog.Logger
}

// Public is the Sight of a peer. It requests each fact from the chain once.
type Public struct {
	cfg   PublicConfig
	slots uint64 // of a window
	rules audit.Rules

	mu      sync.Mutex
	recent  audit.Recent
	looked  bool                          // recent is known
	blocks  map[audit.Window]audit.Beacon // the zero beacon where a window has no block
	rosters map[audit.Window]seen
	asking  map[audit.Window]chan struct{} // closed when a roster being read was read
}

type seen struct {
	roster audit.Roster
	at     time.Time
}

const (
	// poll is the polling interval for the first block of a window.
	poll = time.Second
	// moreBeacons is the number of remembered beacons in addition to those of windows whose refusals count, and of
	// windows that are searched for audits.
	moreBeacons = 64
	// rosters are those of how many audits, at least, are remembered, and rosterFresh for how long each is.
	rosters     = 4
	rosterFresh = time.Minute
	// readers is the number of blocks that are requested at a time.
	readers = 8
	// maxBehind is the largest number of windows since the newest one that was searched for an audit: with more, this
	// peer may have missed audits.
	maxBehind = 3
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
		cfg: cfg, slots: cfg.Genesis.AuditSlots, rules: audit.NewRules(cfg.Genesis),
		blocks: map[audit.Window]audit.Beacon{}, rosters: map[audit.Window]seen{},
		asking: map[audit.Window]chan struct{}{},
	}, nil
}

// Window is the window now, and the slot.
func (p *Public) Window() (audit.Window, market.Slot, error) {
	s, err := p.cfg.Slot()
	return audit.WindowOf(s, p.slots), s, err
}

// Rules check the public parts of the network's audits.
func (p *Public) Rules() audit.Rules { return p.rules }

// Instants are when the audits of a window begin.
func (p *Public) Instants() audit.Instants { return p.rules.Instants() }

// Beacon returns the beacon of a window that has begun, and of its datasets. It returns chain.ErrNotFound while there
// is none.
func (p *Public) Beacon(ctx context.Context, w audit.Window) (Drawn, error) {
	b, err := p.Block(ctx, w)
	if err != nil {
		return Drawn{}, err
	}
	era, err := p.Block(ctx, p.Instants().EraOf(w))
	if err != nil {
		return Drawn{}, fmt.Errorf("the beacon of the datasets: %w", err)
	}
	return Drawn{Beacon: b, Era: era}, nil
}

// Check checks that a beacon is a window's, and returns the beacon of its datasets.
func (p *Public) Check(ctx context.Context, w audit.Window, b audit.Beacon) (era audit.Beacon, err error) {
	own, err := p.Beacon(ctx, w)
	switch {
	case err != nil:
		return audit.Beacon{}, err
	case own.Beacon != b:
		return audit.Beacon{}, &audit.RuleError{
			Rule:   audit.RuleBeacon,
			Detail: fmt.Sprintf("beacon: mismatch: this peer has the one of slot %d", own.Slot),
		}
	}
	return own.Era, nil
}

// Seen is the data to check certificates of a window that has begun. It returns chain.ErrNotFound while there is no
// beacon.
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

// ErrNoBlock means that a window has no block, and never will.
var ErrNoBlock = fmt.Errorf("the window has no block: %w", chain.ErrNotFound)

// Block returns the hash of a window's first final block. It returns chain.ErrNotFound while there is none, and
// ErrNoBlock if there will be none.
func (p *Public) Block(ctx context.Context, w audit.Window) (audit.Beacon, error) {
	p.mu.Lock()
	b, known := p.blocks[w]
	p.mu.Unlock()
	if !known {
		block, err := p.cfg.Blocks.Block(ctx, w.First(p.slots))
		if err != nil {
			return audit.Beacon{}, err
		}
		if audit.WindowOf(block.Slot, p.slots) == w {
			b = audit.Beacon{Slot: block.Slot, Value: block.Hash}
		}
		p.keep(w, b)
	}
	if b.Value.IsZero() {
		return b, fmt.Errorf("window %d: %w", w, ErrNoBlock)
	}
	return b, nil
}

// keep remembers a beacon. If there are too many, it forgets the oldest, except beacons of datasets.
func (p *Public) keep(w audit.Window, b audit.Beacon) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks[w] = b
	for len(p.blocks) > moreBeacons+int(p.Instants().Audits(max(audit.Horizon, audit.MaxRates))) {
		oldest := w
		for old := range p.blocks {
			if old < oldest && old != p.Instants().EraOf(w) {
				oldest = old
			}
		}
		delete(p.blocks, oldest)
	}
}

// errNotLooked means that it is not known which windows had audits.
var errNotLooked = errors.New("windows with audits: not known yet: blocks are being read from the chain")

// Recent is this peer's knowledge of the last windows with an audit. It returns an error while that is too little to
// decide which records are fresh.
func (p *Public) Recent() (audit.Recent, error) {
	now, _, err := p.Window()
	if err != nil {
		return audit.Recent{}, err
	}
	if p.Instants().OneIn <= 1 {
		return audit.Every(now), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.looked || p.recent.Known+maxBehind < now {
		return p.recent, errNotLooked
	}
	return p.recent, nil
}

// Follow finds the windows with audits until ctx ends. If every window has one, it returns at once.
func (p *Public) Follow(ctx context.Context) error {
	if p.Instants().OneIn <= 1 {
		return nil
	}
	said := ""
	for ctx.Err() == nil {
		err := p.look(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			p.cfg.Log.Warn("cannot find out whether a window has an audit", "err", err)
		} else if err == nil {
			said = ""
		}
		select {
		case <-ctx.Done():
		case <-time.After(poll):
		}
	}
	return nil
}

// final is the minimum time from a slot to its final block on Solana: no earlier request is made.
const final = 8 * time.Second

// look finds the facts that are available now.
func (p *Public) look(ctx context.Context) error {
	now, slot, err := p.Window()
	if err != nil {
		return nil // Window returns this error to its callers
	}
	p.mu.Lock()
	known, looked := p.recent.Known, p.looked
	p.mu.Unlock()
	if looked && known >= now {
		return nil
	}
	newest := now
	if wait := min(p.cfg.Genesis.SlotsIn(final), p.slots/4); uint64(slot-now.First(p.slots)) < wait {
		newest = max(now, 1) - 1
	}
	for w := newest; ; w-- {
		if looked && known >= w {
			return nil
		}
		r, err := p.RecentAt(ctx, w)
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.recent, p.looked = r, true
			return nil
		}
		if !errors.Is(err, chain.ErrNotFound) || w == 0 || newest-w >= maxBehind {
			if errors.Is(err, chain.ErrNotFound) {
				return nil // the chain is behind; Recent reports it
			}
			return err
		}
	}
}

// RecentAt is the last windows with an audit up to one. It returns chain.ErrNotFound while its block is not final.
func (p *Public) RecentAt(ctx context.Context, w audit.Window) (audit.Recent, error) {
	in := p.Instants()
	if in.OneIn <= 1 {
		return audit.Every(w), nil
	}
	if _, err := p.Block(ctx, w); err != nil && !errors.Is(err, ErrNoBlock) {
		return audit.Recent{}, err
	}
	if p.cfg.Recent != nil {
		return p.cfg.Recent(ctx, w)
	}
	least := in.Ago(w, audit.Horizon)
	out := audit.Recent{Known: w, Last: least, Before: least}
	found := 0
	for to := w + 1; to > least; { // blocks of some windows at a time, from the newest on
		from := max(to, least+readers) - readers
		fires := make([]bool, to-from)
		g, gctx := errgroup.WithContext(ctx)
		for at := from; at < to; at++ {
			g.Go(func() error {
				b, err := p.Block(gctx, at)
				if errors.Is(err, ErrNoBlock) {
					return nil
				}
				fires[at-from] = err == nil && in.Fires(b)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return out, err
		}
		for at := to; at > from; at-- {
			switch {
			case !fires[at-1-from]:
			case found == 0:
				out.Last, found = at-1, 1
			default:
				out.Before = at - 1
				return out, nil
			}
		}
		to = from
	}
	return out, nil
}

// Roster is the set of a window, as this peer read it first. Readings may differ by members that left, or bonded less,
// since the window began.
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
	p.rosters[w] = seen{r, time.Now()}
	all := slices.Sorted(maps.Keys(p.rosters))
	for _, old := range all[:max(len(all), rosters)-rosters] {
		if time.Since(p.rosters[old].at) > rosterFresh {
			delete(p.rosters, old)
		}
	}
	return r, nil
}
