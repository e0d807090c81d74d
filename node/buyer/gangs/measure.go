package gangs

import (
	"context"
	"slices"

	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
)

// Measured reports whether the paths between the seats are measured.
func (g *Gang) Measured() bool { return g.Cluster != nil && g.Cluster.Survey != nil }

func (g *Gang) measure(ctx context.Context, e gang.Measure) gang.Event {
	return gang.Measured{Round: e.Round, Unfit: g.Cluster.Survey.MeasureSeats(ctx, e.Seats, g.addrs(e.Seats))}
}

// addrs are the addresses of the seats' providers.
func (g *Gang) addrs(seats []gang.Seat) map[sign.Key][]string {
	out := map[sign.Key][]string{}
	for _, s := range seats {
		q := g.Quote(s.Provider)
		out[s.Provider] = slices.Concat(q.Quote.Addrs, q.Offer.Addrs)
	}
	return out
}

// Paths returns the paths between the members of a cluster once the gang has formed. old are those from before it.
func (g *Gang) Paths(old []cluster.Path) []cluster.Path {
	g.mu.Lock()
	seats := g.seats
	g.mu.Unlock()
	return g.Cluster.Survey.Paths(old, seats, g.addrs(seats))
}
