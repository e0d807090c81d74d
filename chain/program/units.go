package program

import (
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// mostUnits is the largest measured consumption of each call, in compute units: section 6 of PROTOCOL.md.
var mostUnits = map[string]uint32{
	"InitNetwork": 17_983, "SetAuthority": 136, "InitPool": 13_639, "OpenEscrow": 31_154, "AddTranche": 12_640,
	"AddStandbyTranche": 15_354, "TopUp": 1_598, "Claim": 11_615, "Retire": 1_841, "Refund": 9_614, "Sweep": 15_343,
	"CloseTranche": 243, "CloseEscrow": 10_948, "Register": 22_934, "Update": 201, "Stake": 3_121,
	"RequestUnstake": 369, "Withdraw": 3_315, "Attest": 20_526, "CloseAttested": 171, "Anchor": 15_341, "Prove": 2_139,
	"CloseAnchor": 173, "DrawPool": 11_306, "InitEmission": 16_547, "Bond": 391, "Release": 374, "Propose": 24_823,
	"Vote": 11_338, "CloseVote": 330, "Enact": 691, "CloseBallot": 335, "Accept": 22_074, "ClaimReward": 11_576,
	"ClosePayout": 13_814, "State": 23_487, "CloseStated": 175,
}

// Units of calls to other programs. The token program's older version takes more than the measured one.
const (
	// a call's: 13 more tries for the address of an account, or three transfers of the older token program
	unitsSpare     = 20_000
	unitsOpenToken = 20_000 + unitsAddress
	unitsMemo      = 50_000
	unitsTable     = 40_000 // of the lookup tables' program
	unitsBuiltin   = 3_000  // the cluster's default for a call of a built-in program
	unitsOther     = 200_000
	// A slash pays three token accounts. A provider may have bought from itself with keys whose token accounts take
	// many tries to derive. Each further try doubles the search for such a key, so a key with 60 tries is infeasible.
	unitsAddress = 60 * 1500
	unitsSlash   = 30_000 + 3*unitsAddress
)

// Units is the compute limit of a transaction with these instructions, with room to spare: twice the measured
// consumption of its calls, and 20,000 for each. at is the program's address.
func Units(at sign.Key, in []svm.Instruction) uint32 {
	sum := uint32(2 * 150) // the budget's own
	for _, i := range in {
		_, opens := i.Opens()
		switch most, known := mostUnits[CallName(at, i)]; {
		case known:
			sum += 2*most + unitsSpare
		case CallName(at, i) == "Slash":
			sum += unitsSlash
		case CallName(at, i) == "SlashAudit":
			sum += SlashAuditUnits + unitsAddress
		case opens:
			sum += unitsOpenToken
		case i.Program == svm.MemoProgram:
			sum += unitsMemo
		case i.Program == svm.TableProgram:
			sum += unitsTable
		case i.Program == svm.SystemProgram, i.Program == svm.LoaderProgram, i.Program == svm.ComputeBudget:
			sum += unitsBuiltin
		case i.Program == svm.Ed25519Program: // not counted in units
		default:
			sum += unitsOther
		}
		if sum > svm.MaxUnits {
			return svm.MaxUnits
		}
	}
	return sum
}
