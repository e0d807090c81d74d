package buyer

import (
	"context"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/verify/meter"
)

func (l *bought) state() meter.PayerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.payer.State()
}

// owed sums up what the leases cost, and the root over all their receipts: by
// lease in the order of bought, then by number.
func (s *supervisor) owed(ctx context.Context, leases []*bought) (out pay.Anchoring, total market.Amount, err error) {
	accounts, err := s.b.Receipts(ctx, s.snapshot().ID)
	if err != nil {
		return out, 0, err
	}
	hashes := Hashes(accounts)
	out.Root, out.Receipts = chain.RootOf(hashes), uint64(len(hashes))
	for _, l := range leases {
		if total, err = total.Add(l.owed()); err != nil {
			return out, 0, err
		}
	}
	return out, total, nil
}

// Hashes names the receipts of a job in the order in which its anchor commits to
// them: by rank, epoch and id of their lease, then by number. Void leases cost nothing and are left out.
func Hashes(accounts []LeaseAccount) []sign.Hash {
	var out []sign.Hash
	for _, a := range accounts {
		if a.Void {
			continue
		}
		for _, r := range a.Receipts {
			out = append(out, r.SignedHash())
		}
	}
	return out
}
