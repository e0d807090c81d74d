// Package lapses remembers which peers took units of a provider and did not pay for them.
//
// [Lapses] is a value without a clock or a disk: the lease book's ledger keeps it beside the book and journals the
// [Change]s of a step with the step.
package lapses

import (
	"bytes"
	"context"
	"math"
	"slices"
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
	// maxPeers bounds the peers that are remembered. The lapses that expire first make room.
	maxPeers = 4096
)

// table has the peers that took units for nothing.
var table = journal.Define[sign.Key, record]("lapsed")

type record struct {
	At    time.Time `json:"at"`    // of the last time
	Times uint32    `json:"times"` // since a day without any
}

// Lapses are the lapses of all peers. Its methods return new values.
type Lapses struct {
	started   time.Time // units that were taken earlier are not counted: this peer may have been away
	of        []*lapse  // by peer, ascending; the slice and its elements are replaced, never changed
	newcomers given
	until     time.Time // the provider is wary until then
}

// lapse is the lapses of one peer.
type lapse struct {
	peer  sign.Key
	at    time.Time // when it last took units for nothing
	times uint32
	given given
}

// Change is a change of a peer's record.
type Change struct {
	peer sign.Key
	to   *record // nil removes it
}

// Put adds the change to a batch.
func (c Change) Put(b *journal.Batch) {
	if c.to == nil {
		table.Delete(b, c.peer)
		return
	}
	table.Put(b, c.peer, *c.to)
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

// Load reads the records of an earlier process, and removes expired ones.
func Load(ctx context.Context, s journal.Store, now time.Time) (Lapses, error) {
	l := Lapses{started: now}
	var old journal.Batch
	err := table.List(ctx, s, "", func(peer sign.Key, r record) error {
		if now.Sub(r.At) > lapseMost {
			table.Delete(&old, peer)
			return nil
		}
		l.of = append(l.of, &lapse{peer: peer, at: r.At, times: r.Times})
		l.until = latest(l.until, r.At.Add(waryFor))
		return nil
	})
	if err == nil {
		err = old.Commit(ctx, s)
	}
	slices.SortFunc(l.of, func(a, b *lapse) int { return bytes.Compare(a.peer[:], b.peer[:]) })
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

// find returns the place of a peer among the lapses, and its lapses, which are those of no peer if it has none.
func (l Lapses) find(peer sign.Key) (at int, was lapse) {
	at, ok := slices.BinarySearchFunc(l.of, peer, func(a *lapse, k sign.Key) int {
		return bytes.Compare(a.peer[:], k[:])
	})
	if ok {
		was = *l.of[at]
	}
	return at, was
}

// Wait returns until when a peer gets no units, and the reason for it, which is empty if it gets some.
func (l Lapses) Wait(peer sign.Key, now time.Time) (until time.Time, why string) {
	_, was := l.find(peer)
	if until = was.over(); !now.Before(until) {
		return until, ""
	}
	return until, "units were set aside for you here that you did not pay for"
}

// Wary reports whether units were taken for nothing lately.
func (l Lapses) Wary(now time.Time) bool { return now.Before(l.until) }

// Len returns the number of peers that are remembered.
func (l Lapses) Len() int { return len(l.of) }

// Unpaid counts units that were not paid for.
func (l Lapses) Unpaid(e lease.Unpaid, now time.Time) (Lapses, []Change) {
	if now.Add(-e.Held).Before(l.started) {
		return l, nil
	}
	at, was := l.find(e.Peer)
	known, lapsed := was.peer == e.Peer, e.Lapsed
	if !lapsed {
		was.given, lapsed = was.given.add(e.Held, givenMost, now)
	}
	wary := lapsed
	if e.Newcomer && !wary {
		l.newcomers, wary = l.newcomers.add(e.Held, newcomersMost, now)
	}
	if wary {
		l.until = latest(l.until, now.Add(waryFor))
	}
	var changes []Change
	if lapsed && now.Add(-e.Held).After(was.at) { // else it had them when it lapsed before
		if now.Sub(was.over()) > lapseMost {
			was.times = 0
		}
		was.times, was.at = min(was.times, math.MaxUint32-1)+1, now
		changes = append(changes, Change{e.Peer, &record{At: now, Times: was.times}})
	}
	was.peer, l.of = e.Peer, slices.Clone(l.of)
	if known {
		l.of[at] = &was
		return l, changes
	}
	l.of = slices.Insert(l.of, at, &was)
	if len(l.of) > maxPeers {
		first := l.first(at)
		if l.of[first].times > 0 {
			changes = append(changes, Change{peer: l.of[first].peer})
		}
		l.of = slices.Delete(l.of, first, first+1)
	}
	return l, changes
}

// first returns the place of the lapses that expire first, other than those at but.
func (l Lapses) first(but int) int {
	first, over := -1, time.Time{}
	for i, was := range l.of {
		if end := latest(was.over(), was.given.at); i != but && (first < 0 || end.Before(over)) {
			first, over = i, end
		}
	}
	return first
}

// Paid forgets the lapses of a peer that paid.
func (l Lapses) Paid(peer sign.Key) (Lapses, []Change) {
	at, was := l.find(peer)
	if was.peer != peer {
		return l, nil
	}
	l.of = slices.Delete(slices.Clone(l.of), at, at+1)
	if was.times == 0 {
		return l, nil
	}
	return l, []Change{{peer: peer}}
}
