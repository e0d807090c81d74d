package program

import (
	"encoding/binary"
	"slices"

	"github.com/starling-network/starling/market/sign"
)

// A transaction's last two instructions set its compute limit and its bid for a place in a block:
//
//	SetComputeUnitLimit   2 ‖ units u32
//	SetComputeUnitPrice   3 ‖ price u64, in millionths of a lamport a unit
//
// Neither names an account.
const (
	tagComputeLimit = 2
	tagComputePrice = 3
)

// BudgetSize is how many bytes the two instructions add to a transaction: the program's address 32, 8 and 12.
const BudgetSize = 52

// MaxUnits is the most that a transaction may compute.
const MaxUnits = 1_400_000

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
	// many tries to derive. Each further try doubles the search for such a key, so nobody finds one that takes 60.
	unitsAddress = 60 * 1500
	unitsSlash   = 30_000 + 3*unitsAddress
)

// Units is the compute limit of a transaction with these instructions, with room to spare: twice the measured
// consumption of its calls, and 20,000 for each. at is the program's address.
func Units(at sign.Key, in []Instruction) uint32 {
	sum := uint32(2 * 150) // the budget's own
	for _, i := range in {
		_, opens := i.Opens()
		switch most, known := mostUnits[i.CallName(at)]; {
		case known:
			sum += 2*most + unitsSpare
		case i.CallName(at) == "Slash":
			sum += unitsSlash
		case i.CallName(at) == "SlashAudit":
			sum += SlashAuditUnits + unitsAddress
		case opens:
			sum += unitsOpenToken
		case i.Program == MemoProgram:
			sum += unitsMemo
		case i.Program == TableProgram:
			sum += unitsTable
		case i.Program == SystemProgram, i.Program == LoaderProgram, i.Program == ComputeBudget:
			sum += unitsBuiltin
		case i.Program == Ed25519Program: // not counted in units
		default:
			sum += unitsOther
		}
		if sum > MaxUnits {
			return MaxUnits
		}
	}
	return sum
}

// Budget is the two instructions.
func Budget(units uint32, price uint64) []Instruction {
	return []Instruction{ComputeLimit(units), {Program: ComputeBudget, Data: data{tagComputePrice}.u64(price)}}
}

// SplitBudget parts the two instructions from those before them. It reports false where the last two are not the two,
// in their one form, or where another instruction is of the compute budget.
func SplitBudget(in []Instruction) (rest []Instruction, units uint32, price uint64, ok bool) {
	n := len(in) - 2
	if n < 0 {
		return in, 0, 0, false
	}
	limit, bid := in[n], in[n+1]
	if limit.Program != ComputeBudget || len(limit.Accounts) > 0 || len(limit.Data) != 5 ||
		limit.Data[0] != tagComputeLimit || bid.Program != ComputeBudget || len(bid.Accounts) > 0 ||
		len(bid.Data) != 9 || bid.Data[0] != tagComputePrice || Budgeted(in[:n]) {
		return in, 0, 0, false
	}
	return in[:n], binary.LittleEndian.Uint32(limit.Data[1:]), binary.LittleEndian.Uint64(bid.Data[1:]), true
}

// Budgeted reports whether an instruction is of the compute budget.
func Budgeted(in []Instruction) bool {
	return slices.ContainsFunc(in, func(i Instruction) bool { return i.Program == ComputeBudget })
}
