package modeltest

import (
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/svm"
)

// maker makes one kind of call; nil if the world has no subject for it.
type maker func(*World) (program.Call, []svm.Signed)

// by is the maker of a part of a world.
func by[P ~struct{ *World }](make func(P) (program.Call, []svm.Signed)) maker {
	return func(w *World) (program.Call, []svm.Signed) { return make(P{w}) }
}

// makers are all. The more likely stand more than once.
var makers = []maker{
	by(escrowCalls.openEscrow), by(escrowCalls.openEscrow), by(escrowCalls.addTranche), by(escrowCalls.addTranche),
	by(escrowCalls.addStandbyTranche), by(escrowCalls.addStandbyTranche), by(escrowCalls.topUp),
	by(escrowCalls.claim), by(escrowCalls.claim), by(escrowCalls.claim), by(escrowCalls.claim),
	by(escrowCalls.retireBegin), by(escrowCalls.retireFinish), by(escrowCalls.retireFinish),
	by(escrowCalls.retireFinal), by(escrowCalls.refund), by(escrowCalls.refund), by(escrowCalls.sweep),
	by(escrowCalls.closeTranche), by(escrowCalls.closeTranche), by(escrowCalls.closeEscrow),
	by(providerCalls.register), by(providerCalls.update), by(providerCalls.stake), by(providerCalls.requestUnstake),
	by(providerCalls.withdraw), by(providerCalls.withdraw), by(providerCalls.attest), by(providerCalls.attest),
	by(providerCalls.attest), by(providerCalls.slash), by(providerCalls.slash), by(providerCalls.closeAttested),
	by(providerCalls.drawPool), by(providerCalls.drawPool), by(providerCalls.anchor), by(providerCalls.prove),
	by(providerCalls.closeAnchor), by(providerCalls.networks), by(providerCalls.networks), by(voteCalls.bond),
	by(voteCalls.bond), by(voteCalls.release), by(voteCalls.proposeRules), by(voteCalls.proposeRewards),
	by(voteCalls.proposeRewards), by(voteCalls.castVote), by(voteCalls.castVote), by(voteCalls.castVote),
	by(voteCalls.closeVote), by(voteCalls.enact), by(voteCalls.enact), by(voteCalls.accept), by(voteCalls.accept),
	by(voteCalls.closeBallot), by(voteCalls.initEmission), by(voteCalls.claimReward), by(voteCalls.claimReward),
	by(voteCalls.closePayout), by(auditCalls.state), by(auditCalls.state), by(auditCalls.state),
	by(auditCalls.closeStated), by(auditCalls.slashAudit),
}
