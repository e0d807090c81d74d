package swarm

import (
	"context"
	"slices"
	"time"

	"github.com/starling-network/starling/p2p/blob/chunks"
)

// ask sends all requests that can be sent now. It returns when to look again, if no result comes before.
func (g *gathering) ask(ctx context.Context, now time.Time) (wait time.Duration) {
	wait = pollMost
	for _, p := range g.sources {
		for !p.gone && p.out < g.width(p) && !now.Before(p.after) && g.room() {
			i := g.pick(p, now)
			if i < 0 {
				break
			}
			g.send(ctx, p, i, now)
		}
		if p.gone || p.out > 0 {
			continue
		}
		if p == g.sources[0] { // nothing can be asked of it before a result comes, or its rest or its sparing ends
			for _, rest := range []time.Duration{p.after.Sub(now), g.begun.Add(spareTime).Sub(now)} {
				if rest > 0 {
					wait = min(wait, rest)
				}
			}
			continue
		}
		if !now.Before(p.poll) && !now.Before(p.after) {
			g.send(ctx, p, -1, now)
			continue
		}
		wait = min(wait, max(p.poll.Sub(now), p.after.Sub(now), time.Millisecond))
	}
	if len(g.asked) > 0 { // a chunk may become late
		wait = min(wait, max(g.slow()/4, time.Millisecond))
	}
	return wait
}

// width returns how many requests a supplier may have at a time.
func (g *gathering) width(p *supplier) int {
	if p == g.sources[0] && g.Spare && slices.ContainsFunc(g.sources[1:], func(f *supplier) bool { return !f.gone }) {
		return 1
	}
	return p.width
}

// spares reports whether the source is not asked for a missing chunk yet. In the beginning it is not known which chunks
// its fellows have.
func (g *gathering) spares(i int, now time.Time) bool {
	since := now.Sub(g.begun)
	return g.Spare && since < spareTime && slices.ContainsFunc(g.sources[1:], func(p *supplier) bool {
		return !p.gone && (p.has.Has(i) || p.has == nil && since < slowLeast)
	})
}

// room reports whether another chunk may be in memory.
func (g *gathering) room() bool {
	out := 0
	for _, p := range g.sources {
		out += p.out
	}
	return out < max(2, int(inFlight/chunks.Size(g.List.Blob)))
}

// pick returns the chunk to ask of a supplier, or -1. The source is asked for chunks that no fellow has, if there are
// such, so that its fellows do not all read the same from it.
func (g *gathering) pick(p *supplier, now time.Time) int {
	at := -1
	for k, i := range g.missing {
		if !p.has.Has(i) || p == g.sources[0] && g.spares(i, now) {
			continue
		}
		if at < 0 {
			at = k
		}
		if p != g.sources[0] || !g.elsewhere(i) {
			at = k
			break
		}
	}
	if at >= 0 {
		i := g.missing[at]
		g.missing = slices.Delete(g.missing, at, at+1)
		return i
	}
	late, since := -1, now.Add(-g.slow())
	for i, rs := range g.asked {
		if len(rs) == 1 && rs[0].of != p && p.has.Has(i) && rs[0].begun.Before(since) {
			late, since = i, rs[0].begun
		}
	}
	return late
}

// elsewhere reports whether a fellow has a chunk.
func (g *gathering) elsewhere(i int) bool {
	return slices.ContainsFunc(g.sources[1:], func(p *supplier) bool { return !p.gone && p.has.Has(i) })
}

// slow is the time after which a chunk is asked of a second peer.
func (g *gathering) slow() time.Duration { return max(slowLeast, slowTimes*g.usual) }

// stuck reports whether no chunk is asked for or can be asked of any fellow.
func (g *gathering) stuck() bool {
	return len(g.asked) == 0 && !slices.ContainsFunc(g.missing, g.elsewhere)
}

// inTurn returns n chunks in the order in which one of some fellows asks for them. Each has every so many-th chunk for
// its turn and takes these forwards, then those of the others backwards: it meets another only at the end.
func inTurn(n, turn, fellows int) (order []int) {
	for k := range fellows {
		var some []int
		for i := (turn + k) % fellows; i < n; i += fellows {
			some = append(some, i)
		}
		if k > 0 {
			slices.Reverse(some)
		}
		order = append(order, some...)
	}
	return order
}
