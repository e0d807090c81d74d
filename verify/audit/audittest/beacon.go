package audittest

import (
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/drand/drandtest"
)

// Began is when the window of a case by drand began, seconds since 1970.
const Began = 9000

// NewBy is a case of nine members on a network whose beacons are by somebody, with its genesis: where peers make them, n do.
func NewBy(by market.Beacon, n int) (Case, market.Genesis, error) {
	c := New(9)
	g := c.Genesis(by)
	var net *drandtest.Network
	var err error
	if by == market.ByDrand {
		if net, err = drandtest.New("quick", 1000, 3); err != nil {
			return c, g, err
		}
		g.Drand = net.Drand
	}
	bs, err := audit.NewBeacons(g)
	if err != nil {
		return c, g, err
	}
	switch by {
	case market.ByDrand:
		c.Drawn = func(Case) (audit.Beacon, []byte, audit.Beacon, error) {
			round := bs.Schedule().After(Began)
			is, era, proof, err := bs.Rounds(round, net.Sign(round), net.Sign(bs.Era(round)))
			return is, proof, era, err
		}
	case market.CommitReveal:
		c.Drawn = func(c Case) (audit.Beacon, []byte, audit.Beacon, error) {
			rs, err := c.Reveals(n)
			is, proof := audit.FromReveals(c.Provider.Key(), c.Window, rs)
			return is, proof, bs.RevealEra(c.Window), err
		}
	}
	return c, g, g.Validate()
}

// Seen is what a reader who was there knows of the case's window.
func (c Case) Seen() audit.Seen {
	if c.Drawn != nil {
		return audit.Seen{Roster: c.Roster, Began: Began, Within: 5}
	}
	return audit.Seen{Roster: c.Roster, Beacon: c.Beacon(), Era: c.Era()}
}

// Genesis is a network of the case's windows and domain.
func (c Case) Genesis(by market.Beacon) market.Genesis {
	d := Domain()
	return market.Genesis{
		Network: d.Network, Chain: d.Chain, Program: d.Program, Escrow: sign.Key{1}, Mint: sign.Key{2}, Symbol: "STAR", Decimals: 6,
		SlotMillis: 400, IntervalSlots: 25, AuditSlots: c.Slots, AuditBeacon: by,
	}
}

// Instants are when audits begin on a network of the case's windows, whose beacons are by a source.
func (c Case) Instants(by audit.Source) audit.Instants {
	i := audit.Instants{Slots: c.Slots, Millis: 400}
	if by == audit.ByReveal {
		i.Chain = c.Genesis(market.CommitReveal).Hash()
	}
	return i
}

// Reveals is what the first n whom the roster draws give to a provider's beacon in the case's window.
func (c Case) Reveals(n int) ([]audit.Revealed, error) {
	provider := c.Provider.Key()
	drawn, _ := c.Roster.DrawRevealers(c.Window, provider)
	drawn = slices.Clone(drawn[:n])
	slices.SortFunc(drawn, func(a, b audit.Member) int { return slices.Compare(a.Key[:], b.Key[:]) })
	list := make([]audit.Commitment, n)
	for i, m := range drawn {
		list[i] = audit.Commit(m.Key, provider, c.Window, nonce(m.Key, 2))
	}
	hash := audit.ListHash(provider, c.Window, list)
	out := make([]audit.Revealed, n)
	for i, m := range drawn {
		r := audit.Reveal{Member: m.Key, Provider: provider, Window: c.Window, List: hash, Nonce: nonce(m.Key, 2)}
		sig, err := r.Sign(Domain(), c.Members[m.Key])
		if err != nil {
			return nil, err
		}
		out[i] = audit.Revealed{Member: m.Key, Nonce: r.Nonce, Signature: sig}
	}
	return out, nil
}
