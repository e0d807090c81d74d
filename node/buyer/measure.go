package buyer

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/starling-network/starling/node/store"
)

// kindPaths are the paths between the members of a cluster, by job id.
const kindPaths = "paths"

const (
	// measureTimeout bounds measuring the paths between finalists: it has to fit into the time that a hold lasts.
	measureTimeout = 3500 * time.Millisecond
	// probesUntil is when no more bytes are sent for it: what is left of the time is for the answers under way.
	probesUntil = 2500 * time.Millisecond
	// echoRounds is how many round trips are measured of each path, and echoAgain of one that is not quite what is wanted, by so much
	// at the most: a busy moment is no distance.
	echoRounds, echoAgain = 4, 24
	notQuite              = 30 * time.Millisecond
	// probeRounds and probeFew are how many rounds of a tournament bytes are sent in: of eight members, all paths; where no rate is
	// asked for, enough to tell.
	probeRounds, probeFew = 7, 2
	// probesAgain is how often a path that carried too little is probed again, with no other beside it.
	probesAgain = 3
)

// Span is what the paths between all members of a cluster come to.
type Span struct {
	Class     cluster.Class `json:"class"` // of the slowest
	RTTMicros uint32        `json:"rttMicros"`
	LeastMbit uint32        `json:"leastMbit,omitempty"` // of those that were measured
	Relayed   int           `json:"relayed,omitempty"`
	Paths     int           `json:"paths"`
}

// span sums paths up.
func span(paths []cluster.Path) Span {
	s := Span{Class: cluster.Slowest(paths), Paths: len(paths)}
	for _, p := range paths {
		s.RTTMicros = max(s.RTTMicros, p.RTTMicros)
		if p.Mbit > 0 && (s.LeastMbit == 0 || p.Mbit < s.LeastMbit) {
			s.LeastMbit = p.Mbit
		}
		if p.Relayed {
			s.Relayed++
		}
	}
	return s
}

// String says it for `starling why`.
func (s Span) String() string {
	text := fmt.Sprintf("%d paths, the longest round trip %v", s.Paths, round(time.Duration(s.RTTMicros)*time.Microsecond))
	if s.LeastMbit > 0 {
		text += fmt.Sprintf(", the least rate seen %d Mbit/s", s.LeastMbit)
	}
	if s.Relayed > 0 {
		text += fmt.Sprintf(", %d over relays", s.Relayed)
	}
	return text + ": a " + string(s.Class)
}

// round is a round trip as a person reads it.
func round(d time.Duration) time.Duration {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// finalist is a member of a cluster that is being formed, or that it has.
type finalist struct {
	rank     uint32
	provider sign.Key
	hold     market.HoldID // zero: its lease is active
	target   *nodepb.LinkTarget
}

// measured is what is known of the paths between providers while a gang forms.
type measured struct {
	mu    sync.Mutex
	paths map[[2]sign.Key]cluster.Path // without ranks, the lower key first
	fails map[[2]sign.Key]string
}

func newMeasured() *measured {
	return &measured{paths: map[[2]sign.Key]cluster.Path{}, fails: map[[2]sign.Key]string{}}
}

func between(a, b sign.Key) [2]sign.Key {
	if slices.Compare(a[:], b[:]) > 0 {
		a, b = b, a
	}
	return [2]sign.Key{a, b}
}

func (m *measured) get(a, b sign.Key) (cluster.Path, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.paths[between(a, b)]
	return p, ok
}

// add takes in a result: the shortest round trip and the highest rate count.
func (m *measured) add(a, b sign.Key, r *nodepb.LinkResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := between(a, b)
	if r.GetRttMicros() == 0 {
		m.fails[k] = clip(r.GetError())
		return
	}
	p, known := m.paths[k]
	if !known || r.RttMicros < p.RTTMicros {
		p.RTTMicros = r.RttMicros
	}
	p.Mbit, p.Relayed = max(p.Mbit, r.Mbit), r.Relayed
	m.paths[k] = p
}

// measure has the paths between the seats, and to the members that the cluster has, measured, and says which seats are too far from the
// others.
func (f *forming) measure(ctx context.Context, e gang.Measure) gang.Event {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	all := f.finalists(e.Seats)
	pairs := f.pairs(all)
	f.echo(ctx, all, pairs, echoRounds)
	var unreached, long []link.Pair
	for _, p := range pairs {
		path, ok := f.paths.get(all[p.A].provider, all[p.B].provider)
		if wanted := f.near.RTT(); !ok {
			unreached = append(unreached, p) // the other end may
		} else if wanted > 0 && path.RTT() >= wanted && path.RTT() < wanted+notQuite {
			long = append(long, p)
		}
	}
	f.echo(ctx, all, unreached, echoRounds)
	f.echo(ctx, all, long, echoAgain)
	pctx, stop := context.WithDeadline(ctx, began.Add(probesUntil))
	defer stop()
	f.probe(pctx, all, pairs)
	unfit := f.unfit(all)
	sum := span(f.between(all))
	f.s.trace.add(Step{At: time.Now(), Kind: StepMeasured, Took: time.Since(began), Detail: fmt.Sprintf("%d finalists: %v", len(e.Seats), sum)})
	for _, u := range unfit {
		r := int(u.Rank)
		i := slices.IndexFunc(all, func(m finalist) bool { return m.rank == u.Rank })
		f.s.trace.add(Step{At: time.Now(), Kind: StepInfeasible, Rank: &r, Provider: all[i].provider.String(), Detail: u.Reason.Detail})
	}
	return gang.Measured{Round: e.Round, Unfit: unfit}
}

// finalists are the seats, and the ranks that have a lease.
func (f *forming) finalists(seats []gang.Seat) []finalist {
	var out []finalist
	taken := map[uint32]bool{}
	add := func(rank uint32, p sign.Key, hold market.HoldID, addrs []string) {
		taken[rank] = true
		t := &nodepb.LinkTarget{Peer: p[:], Addrs: addrs[:min(len(addrs), market.MaxAddrs)]}
		out = append(out, finalist{rank, p, hold, t})
	}
	for _, s := range seats {
		q := f.quotes[s.Provider]
		add(s.Rank, s.Provider, s.Hold, append(slices.Clone(q.quote.Addrs), q.offer.Addrs...))
	}
	for _, l := range f.s.members() {
		if !taken[l.core.Rank] {
			l.mu.Lock()
			addrs := slices.Clone(l.rec.Addrs)
			l.mu.Unlock()
			add(l.core.Rank, l.core.Provider, market.HoldID{}, addrs)
		}
	}
	slices.SortFunc(out, func(a, b finalist) int { return cmp.Compare(a.rank, b.rank) })
	return out
}

// members are the leases that the job's ranks have, by rank.
func (s *supervisor) members() []*bought {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.leases), func(l *bought) bool { return l == nil })
}

// pairs are the paths to measure: those of finalists without a lease that are not known yet, each pair of peers once.
func (f *forming) pairs(all []finalist) []link.Pair {
	var out []link.Pair
	seen := map[[2]sign.Key]bool{}
	for b := range all {
		for a := range b {
			x, y := all[a], all[b]
			k := between(x.provider, y.provider)
			if _, known := f.paths.get(x.provider, y.provider); known || seen[k] || x.provider == y.provider || x.hold.IsZero() && y.hold.IsZero() {
				continue
			}
			seen[k] = true
			out = append(out, link.Pair{A: a, B: b})
		}
	}
	return out
}

// echo has round trips measured, of all pairs at once: a few bytes disturb nobody. What one end did not reach, the other may.
func (f *forming) echo(ctx context.Context, all []finalist, pairs []link.Pair, rounds uint32) {
	asks := map[int][]int{} // targets by who measures
	for _, p := range pairs {
		a, b := p.A, p.B
		f.paths.mu.Lock()
		_, failed := f.paths.fails[between(all[a].provider, all[b].provider)]
		f.paths.mu.Unlock()
		if all[a].hold.IsZero() || !all[b].hold.IsZero() && ((a+b)%2 == 0) != failed {
			a, b = b, a
		}
		asks[a] = append(asks[a], b)
	}
	var wg sync.WaitGroup
	for from, to := range asks {
		for batch := range slices.Chunk(to, link.MaxTargets) {
			wg.Go(func() { f.ask(ctx, all, from, batch, rounds, 0) })
		}
	}
	wg.Wait()
}

// probe has bytes sent between pairs, in the rounds of a tournament, while the time lasts.
func (f *forming) probe(ctx context.Context, all []finalist, pairs []link.Pair) {
	most := probeFew
	if f.near.Mbit() > 0 {
		most = probeRounds
	}
	wanted := map[link.Pair]bool{}
	for _, p := range pairs {
		if path, ok := f.paths.get(all[p.A].provider, all[p.B].provider); ok && !path.Relayed && f.near.Admits(cluster.ClassByRTT(path.RTT())) {
			wanted[p] = true
		}
	}
	one := func(p link.Pair) {
		from, to := p.A, p.B
		if all[from].hold.IsZero() {
			from, to = to, from
		}
		f.ask(ctx, all, from, []int{to}, 1, link.MaxBytes)
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
			if path, ok := f.paths.get(all[p.A].provider, all[p.B].provider); ok && path.Mbit > 0 && wanted[p] && ctx.Err() == nil && f.near.Falls(0, uint64(path.Mbit)) != "" {
				one(p)
			}
		}
	}
}

// ask has one finalist measure the paths to others.
func (f *forming) ask(ctx context.Context, all []finalist, from int, to []int, rounds, bytes uint32) {
	m := all[from]
	req := &nodepb.MeasureRequest{Hold: m.hold[:], Rounds: rounds, Bytes: bytes}
	for _, t := range to {
		req.Targets = append(req.Targets, all[t].target)
	}
	var reply *nodepb.MeasureReply
	id, err := f.s.b.remember(m.provider, m.target.Addrs)
	if err == nil {
		reply, err = protocol.Measure.Call(ctx, f.s.b.cfg.Host, f.s.b.tag, id, req)
	}
	if err == nil && len(reply.Results) != len(to) {
		err = errors.New("it answered with other paths than it was asked for")
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
			f.paths.add(m.provider, all[t].provider, r)
		}
	}
}

// between are the paths between members, as far as they are known.
func (f *forming) between(all []finalist) []cluster.Path {
	var out []cluster.Path
	for b := range all {
		for a := range b {
			p, ok := f.paths.get(all[a].provider, all[b].provider)
			if same := all[a].provider == all[b].provider; !ok && !same {
				continue
			}
			p.A, p.B = all[a].rank, all[b].rank
			out = append(out, p)
		}
	}
	return out
}

// unfit are the fewest seats that it finds without which every path is as good as was asked: each time who has most that are not, of those
// the one that can be spared best.
func (f *forming) unfit(all []finalist) []gang.Unfit {
	type flaw struct{ a, b int }
	why := map[flaw]string{}
	for b := range all {
		for a := range b {
			if text := f.flaw(all[a], all[b]); text != "" {
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
			if !all[i].hold.IsZero() && count[i] > 0 && (worst < 0 || count[i] >= count[worst]) {
				worst = i
			}
		}
		if worst < 0 {
			break
		}
		var text string
		for i := range all {
			if t, ok := why[flaw{min(i, worst), max(i, worst)}]; ok && i != worst {
				text = fmt.Sprintf("rank %d at %s: %s", all[i].rank, all[i].provider.Short(), t)
				break
			}
		}
		if more := count[worst] - 1; more > 0 {
			text += fmt.Sprintf("; and to %d more", more)
		}
		out = append(out, gang.Unfit{Rank: all[worst].rank, Hold: all[worst].hold, Reason: market.Refuse(market.ReasonDistance, "measured to %s", text)})
		for p := range why {
			if p.a == worst || p.b == worst {
				delete(why, p)
			}
		}
	}
	return out
}

// flaw says what is wrong with the path between two members; "" if nothing is. The path between two that have leases is as it is.
func (f *forming) flaw(a, b finalist) string {
	if a.provider == b.provider || a.hold.IsZero() && b.hold.IsZero() {
		return ""
	}
	p, ok := f.paths.get(a.provider, b.provider)
	if !ok {
		f.paths.mu.Lock()
		defer f.paths.mu.Unlock()
		return cmp.Or(f.paths.fails[between(a.provider, b.provider)], "the path was not measured in time")
	}
	if p.Relayed && f.near != cluster.WAN {
		return fmt.Sprintf("only a relay connects them, and a %s needs a path of their own", f.near)
	}
	return f.falls(p)
}

// falls says what a path lacks of what is wanted, whoever carries it; "" if nothing.
func (f *forming) falls(p cluster.Path) string {
	mbit := uint64(p.Mbit)
	if mbit == 0 {
		mbit = ^uint64(0) // not every path is probed
	}
	return f.near.Falls(p.RTT(), mbit)
}

// putPaths is what the journal is told of the paths between the members, once they have leases.
func (f *forming) putPaths(seats []gang.Seat, old []cluster.Path) ([]cluster.Path, store.Put, error) {
	all := f.finalists(seats)
	is, kept := map[uint32]bool{}, map[[2]uint32]bool{}
	for _, m := range all {
		is[m.rank] = true
	}
	for _, s := range seats {
		delete(is, s.Rank) // what was measured of who had the rank before counts no more
	}
	var fresh []cluster.Path
	for _, p := range old { // members have been told of it
		if is[p.A] && is[p.B] {
			fresh, kept[[2]uint32{p.A, p.B}] = append(fresh, p), true
		}
	}
	for _, p := range f.between(all) {
		if !kept[[2]uint32{p.A, p.B}] {
			fresh = append(fresh, p)
		}
	}
	slices.SortFunc(fresh, func(a, b cluster.Path) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) })
	b, err := json.Marshal(fresh)
	if err != nil {
		return nil, store.Put{}, fmt.Errorf("encoding the paths of job %s: %w", f.s.trace.job, err)
	}
	return fresh, store.Put{Kind: kindPaths, Key: f.s.trace.job, Value: b}, nil
}

// Paths are what was measured of the paths between the ranks of a cluster, by rank; none for another job.
func (b *Buyer) Paths(ctx context.Context, job string) ([]cluster.Path, error) {
	raw, err := b.cfg.Store.Get(ctx, kindPaths, job)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the paths of job %s: %w", job, err)
	}
	var out []cluster.Path
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("reading the paths of job %s: %w", job, err)
	}
	return out, nil
}

// pathsNow are the paths between the members of the job's cluster, none for another one.
func (s *supervisor) pathsNow(ctx context.Context) ([]cluster.Path, error) {
	s.mu.Lock()
	known := s.paths
	s.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	read, err := s.b.Paths(context.WithoutCancel(ctx), s.trace.job) // a job that is being stopped does not fail for it
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths == nil { // else a gang formed meanwhile
		s.paths = &read
	}
	return *s.paths, nil
}

// setPaths sets them; nil: they are to be read again.
func (s *supervisor) setPaths(paths *[]cluster.Path) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths = paths
}

// unsettled says that nothing that was measured keeps the providers apart: they reach each other over relays only, or did not in time.
// Peers that have just met through a relay find a path of their own within seconds, as a rule, and a busy moment passes.
func (f *forming) unsettled() bool {
	f.paths.mu.Lock()
	defer f.paths.mu.Unlock()
	found := false
	for k := range f.paths.fails {
		_, reached := f.paths.paths[k]
		found = found || !reached
	}
	for _, p := range f.paths.paths {
		switch {
		case p.Relayed && f.near != cluster.WAN:
			found = true
		case f.falls(p) != "":
			return false
		}
	}
	return found
}
