package audittest

import (
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// Genesis is a network of the case's windows and domain.
func (c Case) Genesis(by market.Beacon) market.Genesis {
	d := Domain()
	return market.Genesis{
		Network: d.Network, Chain: d.Chain, Program: d.Program, Escrow: sign.Key{1}, Mint: sign.Key{2}, Symbol: "STAR", Decimals: 6,
		SlotMillis: 400, IntervalSlots: 25, AuditSlots: c.Slots, AuditBeacon: by,
	}
}

// Reveals is what the first n whom the roster draws give to a provider's beacon in the case's window.
func (c Case) Reveals(n int) ([]audit.Revealed, error) {
	provider := c.Provider.Key()
	drawn, _ := c.Roster.DrawRevealers(c.Window, provider)
	drawn = slices.Clone(drawn[:n])
	slices.SortFunc(drawn, func(a, b audit.Member) int { return slices.Compare(a.Key[:], b.Key[:]) })
	list := make([]audit.Commitment, n)
	for i, m := range drawn {
		list[i] = audit.Commit(m.Key, provider, c.Window, nonce(m.Key, 9))
	}
	hash := audit.ListHash(provider, c.Window, list)
	out := make([]audit.Revealed, n)
	for i, m := range drawn {
		r := audit.Reveal{Member: m.Key, Provider: provider, Window: c.Window, List: hash, Nonce: nonce(m.Key, 9)}
		sig, err := r.Sign(Domain(), c.Members[m.Key])
		if err != nil {
			return nil, err
		}
		out[i] = audit.Revealed{Member: m.Key, Nonce: r.Nonce, Signature: sig}
	}
	return out, nil
}
