package reputation_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/starling-network/starling/market"
	book "github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/reputation"
)

// The metrics of a book are what counts: settled and lost tokens of this peer's own leases by the role and conduct of
// the other side, records by kind, and leases of others. No label names a peer.
func TestMetrics(t *testing.T) {
	t.Parallel()
	self, other, third := key(1), key(2), key(3)
	cfg := config(store.NewMemory())
	cfg.Self = self
	b := open(t, cfg)
	bought, sold, lost := leaseOf(1, other, self), leaseOf(2, self, other), leaseOf(3, third, self)
	b.File(bought, receiptOf(bought, 1_500_000))
	b.File(bought, receiptOf(bought, 2_500_000)) // the same lease later
	b.File(sold, receiptOf(sold, 4_000_000))
	b.Failed(lost.Core, 250_000)
	b.Record(reputation.Fact{
		ID: [32]byte{9}, Kind: reputation.AuditLate, Role: reputation.Provider, Subject: third, At: market.Slot(5),
	})
	const want = `
# HELP starling_reputation_leases Own leases that count in the reputation of the other party, by its role and conduct.
# TYPE starling_reputation_leases gauge
starling_reputation_leases{conduct="failed",role="buyer"} 0
starling_reputation_leases{conduct="failed",role="provider"} 1
starling_reputation_leases{conduct="kept",role="buyer"} 1
starling_reputation_leases{conduct="kept",role="provider"} 1
# HELP starling_reputation_others Leases of other peers, from their anchored receipts, that count in the reputation of their sides.
# TYPE starling_reputation_others gauge
starling_reputation_others 0
# HELP starling_reputation_records Audits and proofs that count in the reputation of providers, by kind.
# TYPE starling_reputation_records gauge
starling_reputation_records{kind="audit failed"} 0
starling_reputation_records{kind="audit late"} 1
starling_reputation_records{kind="audit passed"} 0
starling_reputation_records{kind="lied"} 0
starling_reputation_records{kind="sold twice"} 0
# HELP starling_reputation_tokens Tokens of these leases: settled with a party that kept them, or lost by one that failed them.
# TYPE starling_reputation_tokens gauge
starling_reputation_tokens{conduct="failed",role="buyer"} 0
starling_reputation_tokens{conduct="failed",role="provider"} 0.25
starling_reputation_tokens{conduct="kept",role="buyer"} 4
starling_reputation_tokens{conduct="kept",role="provider"} 2.5
`
	s := book.NewService(b, 6)
	if err := testutil.CollectAndCompare(s, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(s); err != nil || len(problems) > 0 || s.Name() != "reputation" {
		t.Errorf("metrics of %s: %v, %v", s.Name(), problems, err)
	}
}
