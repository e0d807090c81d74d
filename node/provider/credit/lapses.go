package credit

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
)

const (
	// lapseWait is how long a peer gets no units that took some for nothing twice, doubled each further time up to
	// lapseMost. Once is forgiven: computers crash. After lapseMost without another time it begins anew.
	lapseWait = 10 * time.Minute
	lapseMost = 24 * time.Hour
	// givenMost is the time per hour for which a peer may hold units without paying; a longer time counts as free use.
	// newcomersMost is the time of all newcomers together after which the provider is wary of them.
	givenMost     = time.Minute
	newcomersMost = 5 * time.Minute
	givenOver     = time.Hour
	// waryFor is how long the provider is wary of newcomers.
	waryFor = time.Hour
)

// lapsedTable has the peers that took units for nothing.
var lapsedTable = journal.Define[sign.Key, lapsed]("lapsed")

type lapsed struct {
	At    time.Time `json:"at"`    // the last time
	Times uint32    `json:"times"` // how often
}

// lapses remembers which peers took units and did not pay for them.
type lapses struct {
	store   journal.Store
	started time.Time // earlier lapses are not counted: this peer was away, perhaps

	mu        sync.Mutex
	of        map[sign.Key]lapse
	newcomers given
	until     time.Time // wary until then
}

// lapse is the lapses of one peer.
type lapse struct {
	at    time.Time // when it last took units for nothing
	times uint32
	given given
}

// given is the time for which units were set aside and then given back. It fades within givenOver.
type given struct {
	spent time.Duration
	at    time.Time
}

// add adds d and reports whether the total exceeds most; it then starts anew.
func (g given) add(d, most time.Duration, now time.Time) (given, bool) {
	fades := time.Duration(float64(most) * now.Sub(g.at).Hours() / givenOver.Hours())
	g = given{max(g.spent-fades, 0) + min(d, most+1), now}
	if g.spent > most {
		return given{}, true
	}
	return g, false
}

// loadLapses reads the records of an earlier process.
func loadLapses(ctx context.Context, s journal.Store, now time.Time) (*lapses, error) {
	l := &lapses{store: s, started: now, of: map[sign.Key]lapse{}}
	var old journal.Batch
	err := lapsedTable.List(ctx, s, "", func(peer sign.Key, r lapsed) error {
		was := lapse{at: r.At, times: r.Times}
		if now.Sub(was.at) > lapseMost {
			lapsedTable.Delete(&old, peer)
			return nil
		}
		l.of[peer] = was
		l.until = latest(l.until, was.at.Add(waryFor))
		return nil
	})
	if err == nil {
		err = old.Commit(ctx, s)
	}
	return l, err
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// over is when a peer gets units again.
func (l lapse) over() time.Time {
	if l.times < 2 {
		return l.at
	}
	wait := lapseMost
	if n := l.times - 2; n < 8 {
		wait = min(lapseWait<<n, lapseMost)
	}
	return l.at.Add(wait)
}

// wait returns until when a peer gets no units, and the reason for it, which is empty if it gets some.
func (l *lapses) wait(peer sign.Key, now time.Time) (until time.Time, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.of[peer]
	if until = was.over(); !now.Before(until) {
		return until, ""
	}
	return until, "units were set aside for you here that you did not pay for"
}

// wary reports whether units were taken for nothing lately.
func (l *lapses) wary(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.until)
}

// after is the new state of the lapses once units were not paid for, in these respects.
type after struct {
	peer      sign.Key
	was       lapse
	newcomers given
	until     time.Time
	drops     sign.Key // is forgotten; zero means none
}

// unpaid counts units that were not paid for. It adds the records to a batch, and returns the state to set after its
// commit.
func (l *lapses) unpaid(e lease.Unpaid, now time.Time, b *journal.Batch) after {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := after{peer: e.Peer, was: l.of[e.Peer], newcomers: l.newcomers, until: l.until}
	if now.Add(-e.Held).Before(l.started) {
		return to
	}
	lapse := e.Lapsed
	if !lapse {
		to.was.given, lapse = to.was.given.add(e.Held, givenMost, now)
	}
	wary := lapse
	if e.Newcomer && !wary {
		to.newcomers, wary = l.newcomers.add(e.Held, newcomersMost, now)
	}
	if wary {
		to.until = latest(l.until, now.Add(waryFor))
	}
	if _, known := l.of[e.Peer]; !known && len(l.of) >= maxRemembered {
		if to.drops = l.first(); l.of[to.drops].times > 0 {
			lapsedTable.Delete(b, to.drops)
		}
	}
	if lapse && now.Add(-e.Held).After(to.was.at) { // else it had them when it lapsed before
		if now.Sub(to.was.over()) > lapseMost {
			to.was.times = 0
		}
		to.was.times, to.was.at = min(to.was.times, math.MaxUint32-1)+1, now
		lapsedTable.Put(b, e.Peer, lapsed{At: now, Times: to.was.times})
	}
	return to
}

// set applies the state that unpaid returned.
func (l *lapses) set(to after) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, to.drops)
	if l.newcomers, l.until = to.newcomers, to.until; to.was != (lapse{}) {
		l.of[to.peer] = to.was
	}
}

// first is the peer with the lapses that expire first; l.mu is held.
func (l *lapses) first() (first sign.Key) {
	var over time.Time
	for k, was := range l.of {
		if end := latest(was.over(), was.given.at); first.IsZero() || end.Before(over) {
			first, over = k, end
		}
	}
	return first
}

// paid forgets the lapses of a peer that paid.
func (l *lapses) paid(ctx context.Context, peer sign.Key) error {
	l.mu.Lock()
	was, known := l.of[peer]
	delete(l.of, peer)
	l.mu.Unlock()
	if !known || was.times == 0 {
		return nil
	}
	return lapsedTable.Remove(ctx, l.store, peer)
}
