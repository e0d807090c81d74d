package harness

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/store"
)

// power is the journal of one process. At the write named by Crash the peer loses power: it leaves the network at the
// same moment. power also checks the writes: no unit may be in two live records at any time, unless they are a lease
// and its renewals.
type power struct {
	t     testing.TB
	crash *store.Crashing
	at    Crash // the crash, or the zero value for none
	off   func()

	mu     sync.Mutex
	full   error
	writes []string
	holds  map[string]lease.Record // live records by key
}

// Crash names a write of a peer's journal at which the peer loses power, and the side of the write. With a kind, only
// writes of that kind count, because runs of one test may differ by a write of another kind.
type Crash struct {
	Write int
	Kind  string // "" for any
	When  store.When
}

// kindHold is the provider's kind of hold records.
const kindHold = "hold"

func newPower(t testing.TB, disk *store.Memory, at Crash, off func()) *power {
	p := &power{t: t, crash: store.NewCrashing(disk), off: off, holds: map[string]lease.Record{}}
	if at.Kind != "" {
		p.at = at
	} else if at.Write > 0 {
		p.crash.CrashAt(at.Write, at.When)
	}
	if err := disk.List(context.Background(), kindHold, "", func(key string, value []byte) error {
		p.watch(store.Put{Kind: kindHold, Key: key, Value: value})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// Write implements store.Store.
func (p *power) Write(ctx context.Context, puts ...store.Put) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full != nil {
		return p.full
	}
	if !p.down() && ctx.Err() == nil {
		kinds := kindsOf(puts)
		p.writes = append(p.writes, kinds)
		if p.at.Kind == kinds {
			if p.at.Write--; p.at.Write == 0 {
				p.crash.CrashAt(p.crash.Count()+1, p.at.When)
			}
		}
	}
	err := p.crash.Write(ctx, puts...)
	if errors.Is(err, store.ErrCrashed) {
		p.off()
	}
	if err == nil {
		for _, put := range puts {
			p.watch(put)
		}
	}
	return err
}

// watch records the live holds.
func (p *power) watch(put store.Put) {
	if put.Kind != kindHold {
		return
	}
	delete(p.holds, put.Key)
	if put.Value == nil {
		return
	}
	r, err := lease.UnmarshalRecord(put.Value)
	if err != nil {
		p.t.Errorf("hold %s in the journal: %v", put.Key, err)
		return
	}
	if !r.State.Live() {
		return
	}
	for key, o := range p.holds {
		if o.Core != nil && r.Core != nil && o.First() == r.First() &&
			(o.Core.End <= r.Core.Start || r.Core.End <= o.Core.Start) {
			continue // one lease extends the other
		}
		for _, u := range r.Units {
			if slices.Contains(o.Units, u) {
				p.t.Errorf("unit %s is in two live leases: holds %s and %s", u.Short(), key, put.Key)
			}
		}
	}
	p.holds[put.Key] = r
}

func kindsOf(puts []store.Put) string {
	var kinds []string
	for _, put := range puts {
		if !slices.Contains(kinds, put.Kind) {
			kinds = append(kinds, put.Kind)
		}
	}
	slices.Sort(kinds)
	return strings.Join(kinds, "+")
}

func (p *power) kinds() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.writes)
}

// fill makes every write fail as a full disk does; nil ends that.
func (p *power) fill(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = err
}

func (p *power) cut() {
	p.crash.Cut()
	p.off()
}

func (p *power) down() bool {
	select {
	case <-p.crash.Crashed():
		return true
	default:
		return false
	}
}

// Get implements store.Store.
func (p *power) Get(ctx context.Context, kind, key string) ([]byte, error) {
	return p.crash.Get(ctx, kind, key)
}

// List implements store.Store.
func (p *power) List(ctx context.Context, kind, prefix string, fn func(key string, value []byte) error) error {
	return p.crash.List(ctx, kind, prefix, fn)
}

// Close implements store.Store.
func (p *power) Close() error { return p.crash.Close() }
