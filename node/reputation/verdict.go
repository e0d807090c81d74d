package reputation

import (
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/reputation"
)

// OfVerdict returns the fact that a verdict of this peer is in a provider's reputation.
func OfVerdict(provider sign.Key, v audit.Verdict) reputation.Fact {
	kinds := map[audit.Outcome]reputation.Kind{
		audit.Pass: reputation.AuditPassed, audit.Late: reputation.AuditLate, audit.Wrong: reputation.AuditFailed,
	}
	return reputation.Fact{
		ID: v.Answer, Kind: kinds[v.Outcome], Role: reputation.Provider, Subject: provider, At: v.Slot,
	}
}
