// Package mesh is a buyer's view of a cluster from outside: the measured paths between its members, how each reaches
// the others, and whether the cluster is in use.
package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/link"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
)

const (
	// MeasureTimeout bounds measuring the paths between finalists: it has to fit into the time that a hold lasts.
	MeasureTimeout = 3500 * time.Millisecond
	// probesUntil is when no more bytes are sent for it: the rest of the time is for the answers under way.
	probesUntil = 2500 * time.Millisecond
	// echoRounds is the number of round trips measured for each path. A path that misses the class by less than
	// notQuite is measured echoAgain times, to rule out a busy moment.
	echoRounds, echoAgain = 4, 24
	notQuite              = 30 * time.Millisecond
	// probeRounds and probeFew are the rounds of a tournament in which bytes are sent: of eight members, all paths;
	// where no rate is asked for, enough for an estimate.
	probeRounds, probeFew = 7, 2
	// probesAgain is how often a path that carried too little is probed again, with no other beside it.
	probesAgain = 3
	// maxFailure bounds the text of a failed measurement.
	maxFailure = 800
)

// Finalist is a member of a cluster that is being formed, or that it has.
type Finalist struct {
	Rank     uint32
	Provider sign.Key
	Hold     market.HoldID // zero: its lease is active
	Addrs    []string      // at most market.MaxAddrs
}

func (f Finalist) target() *nodepb.LinkTarget {
	return &nodepb.LinkTarget{Peer: f.Provider[:], Addrs: f.Addrs}
}

// pair names a path by its ends, the lower key first.
type pair [2]sign.Key

func between(a, b sign.Key) pair {
	if slices.Compare(a[:], b[:]) > 0 {
		a, b = b, a
	}
	return pair{a, b}
}

// Survey measures the paths between the providers of a cluster while its gang forms. It may be used by many goroutines.
type Survey struct {
	host   *p2p.Host
	tag    string
	wanted cluster.Class

	mu    sync.Mutex
	paths map[pair]cluster.Path // without ranks
	fails map[pair]string
}

// NewSurvey returns a Survey without results for a cluster that needs a class of network.
func NewSurvey(h *p2p.Host, tag string, wanted cluster.Class) *Survey {
	return &Survey{host: h, tag: tag, wanted: wanted, paths: map[pair]cluster.Path{}, fails: map[pair]string{}}
}

func (s *Survey) get(a, b sign.Key) (cluster.Path, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.paths[between(a, b)]
	return p, ok
}

func (s *Survey) failure(a, b sign.Key) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, ok := s.fails[between(a, b)]
	return text, ok
}

// add notes a result: the shortest round trip and the highest rate count.
func (s *Survey) add(a, b sign.Key, r *nodepb.LinkResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := between(a, b)
	if r.GetRttMicros() == 0 {
		s.fails[k] = market.Clean(r.GetError(), maxFailure)
		return
	}
	p, known := s.paths[k]
	if !known || r.RttMicros < p.RTTMicros {
		p.RTTMicros = r.RttMicros
	}
	p.Mbit, p.Relayed = max(p.Mbit, r.Mbit), r.Relayed
	s.paths[k] = p
}

// Measure measures the paths between finalists that are not known yet, and returns the seats that are too far from the
// others. The finalists are in the order of their ranks.
func (s *Survey) Measure(ctx context.Context, all []Finalist) []gang.Unfit {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, MeasureTimeout)
	defer cancel()
	pairs := s.unknown(all)
	s.echo(ctx, all, pairs, echoRounds)
	var unreached, long []link.Pair
	for _, p := range pairs {
		path, ok := s.get(all[p.A].Provider, all[p.B].Provider)
		if wanted := s.wanted.RTT(); !ok {
			unreached = append(unreached, p) // the other end may
		} else if wanted > 0 && path.RTT() >= wanted && path.RTT() < wanted+notQuite {
			long = append(long, p)
		}
	}
	s.echo(ctx, all, unreached, echoRounds)
	s.echo(ctx, all, long, echoAgain)
	pctx, stop := context.WithDeadline(ctx, began.Add(probesUntil))
	defer stop()
	s.probe(pctx, all, pairs)
	return s.unfit(all)
}

// unknown returns the paths to measure: those of finalists without a lease that are not known yet, each pair of peers
// once.
func (s *Survey) unknown(all []Finalist) []link.Pair {
	var out []link.Pair
	seen := map[pair]bool{}
	for b := range all {
		for a := range b {
			x, y := all[a], all[b]
			k := between(x.Provider, y.Provider)
			_, known := s.get(x.Provider, y.Provider)
			if known || seen[k] || x.Provider == y.Provider || x.Hold.IsZero() && y.Hold.IsZero() {
				continue
			}
			seen[k] = true
			out = append(out, link.Pair{A: a, B: b})
		}
	}
	return out
}

// echo measures the round trips of all pairs at once, because a few bytes disturb no other measurement. Reachability
// may be one-way.
func (s *Survey) echo(ctx context.Context, all []Finalist, pairs []link.Pair, rounds uint32) {
	asks := map[int][]int{} // targets by the finalist that measures
	for _, p := range pairs {
		a, b := p.A, p.B
		_, failed := s.failure(all[a].Provider, all[b].Provider)
		if all[a].Hold.IsZero() || !all[b].Hold.IsZero() && ((a+b)%2 == 0) != failed {
			a, b = b, a
		}
		asks[a] = append(asks[a], b)
	}
	var wg sync.WaitGroup
	for from, to := range asks {
		for batch := range slices.Chunk(to, link.MaxTargets) {
			wg.Go(func() { s.ask(ctx, all, from, batch, rounds, 0) })
		}
	}
	wg.Wait()
}

// probe has bytes sent between pairs, in the rounds of a tournament, while the time lasts.
func (s *Survey) probe(ctx context.Context, all []Finalist, pairs []link.Pair) {
	most := probeFew
	if s.wanted.Mbit() > 0 {
		most = probeRounds
	}
	wanted := map[link.Pair]bool{}
	for _, p := range pairs {
		path, ok := s.get(all[p.A].Provider, all[p.B].Provider)
		if ok && !path.Relayed && s.wanted.Admits(cluster.ClassByRTT(path.RTT())) {
			wanted[p] = true
		}
	}
	one := func(p link.Pair) {
		from, to := p.A, p.B
		if all[from].Hold.IsZero() {
			from, to = to, from
		}
		s.ask(ctx, all, from, []int{to}, 1, link.MaxBytes)
	}
	for _, round := range link.Rounds(len(all)) {
		round = slices.DeleteFunc(round, func(p link.Pair) bool { return !wanted[p] })
		if len(round) == 0 {
			continue
		}
		if most--; most < 0 || ctx.Err() != nil {
			break
		}
		var wg sync.WaitGroup
		for _, p := range round {
			wg.Go(func() { one(p) })
		}
		wg.Wait()
	}
	for range probesAgain {
		for _, p := range pairs {
			path, ok := s.get(all[p.A].Provider, all[p.B].Provider)
			if ok && path.Mbit > 0 && wanted[p] && ctx.Err() == nil && s.wanted.Falls(0, uint64(path.Mbit)) != "" {
				one(p)
			}
		}
	}
}

// ask requests measurements of the paths to others from one finalist.
func (s *Survey) ask(ctx context.Context, all []Finalist, from int, to []int, rounds, bytes uint32) {
	m := all[from]
	req := &nodepb.MeasureRequest{Hold: m.Hold[:], Rounds: rounds, Bytes: bytes}
	for _, t := range to {
		req.Targets = append(req.Targets, all[t].target())
	}
	var reply *nodepb.MeasureReply
	id, err := s.host.Remember(m.Provider, m.Addrs)
	if err == nil {
		reply, err = protocol.Measure.Call(ctx, s.host, s.tag, id, req)
	}
	if err == nil && len(reply.Results) != len(to) {
		err = errors.New("the answer has other paths than the request")
	}
	for i, t := range to {
		r := &nodepb.LinkResult{}
		if err == nil {
			r = reply.Results[i]
		} else if bytes > 0 {
			continue // its round trip is known
		} else {
			r.Error = err.Error()
		}
		if r.GetRttMicros() > 0 || bytes == 0 {
			s.add(m.Provider, all[t].Provider, r)
		}
	}
}

// Between returns the known paths between members.
func (s *Survey) Between(all []Finalist) []cluster.Path {
	var out []cluster.Path
	for b := range all {
		for a := range b {
			p, ok := s.get(all[a].Provider, all[b].Provider)
			if same := all[a].Provider == all[b].Provider; !ok && !same {
				continue
			}
			p.A, p.B = all[a].Rank, all[b].Rank
			out = append(out, p)
		}
	}
	return out
}

// Longest returns the longest round trip that was measured.
func (s *Survey) Longest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var most time.Duration
	for _, p := range s.paths {
		most = max(most, p.RTT())
	}
	return most
}

// Unsettled reports whether no result keeps the providers apart for good: they reach each other over relays only, or
// did not in time. Peers that have just met through a relay find a path of their own within seconds, as a rule, and a
// busy moment passes.
func (s *Survey) Unsettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	for k := range s.fails {
		_, reached := s.paths[k]
		found = found || !reached
	}
	for _, p := range s.paths {
		switch {
		case p.Relayed && s.wanted != cluster.WAN:
			found = true
		case s.falls(p) != "":
			return false
		}
	}
	return found
}

// unfit returns a small set of seats without which every path meets the requirements. It repeatedly takes the seat with
// the most bad paths; of equal seats, the most dispensable.
func (s *Survey) unfit(all []Finalist) []gang.Unfit {
	type flaw struct{ a, b int }
	why := map[flaw]string{}
	for b := range all {
		for a := range b {
			if text := s.flaw(all[a], all[b]); text != "" {
				why[flaw{a, b}] = text
			}
		}
	}
	var out []gang.Unfit
	for len(why) > 0 {
		count := make([]int, len(all))
		for p := range why {
			count[p.a]++
			count[p.b]++
		}
		worst := -1
		for i := range all { // the head and low ranks are the more reliable
			if !all[i].Hold.IsZero() && count[i] > 0 && (worst < 0 || count[i] >= count[worst]) {
				worst = i
			}
		}
		if worst < 0 {
			break
		}
		var text string
		for i := range all {
			if t, ok := why[flaw{min(i, worst), max(i, worst)}]; ok && i != worst {
				text = fmt.Sprintf("rank %d at %s: %s", all[i].Rank, all[i].Provider.Short(), t)
				break
			}
		}
		if more := count[worst] - 1; more > 0 {
			text += fmt.Sprintf("; and to %d more", more)
		}
		out = append(out, gang.Unfit{Rank: all[worst].Rank, Hold: all[worst].Hold,
			Reason: market.Refuse(market.ReasonDistance, "measured to %s", text)})
		for p := range why {
			if p.a == worst || p.b == worst {
				delete(why, p)
			}
		}
	}
	return out
}

// flaw describes the fault of the path between two members, or returns "". The path between two that have leases has
// none.
func (s *Survey) flaw(a, b Finalist) string {
	if a.Provider == b.Provider || a.Hold.IsZero() && b.Hold.IsZero() {
		return ""
	}
	p, ok := s.get(a.Provider, b.Provider)
	if !ok {
		text, _ := s.failure(a.Provider, b.Provider)
		return cmp.Or(text, "the path was not measured in time")
	}
	if p.Relayed && s.wanted != cluster.WAN {
		return fmt.Sprintf("only a relay connects them, and a %s needs a path of their own", s.wanted)
	}
	return s.falls(p)
}

// falls describes by how much a path misses the required class, or returns "".
func (s *Survey) falls(p cluster.Path) string {
	mbit := uint64(p.Mbit)
	if mbit == 0 {
		mbit = ^uint64(0) // not every path is probed
	}
	return s.wanted.Falls(p.RTT(), mbit)
}
