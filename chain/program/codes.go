package program

// The program's refusals, by number; the names and sentences are those of src/error.rs, which a test compares.
const (
	ErrData            Code = 1
	ErrInstruction     Code = 2
	ErrTooManyAccounts Code = 3
	ErrAccountCount    Code = 4
	ErrInput           Code = 5
	ErrNotSigner       Code = 10
	ErrNotWritable     Code = 11
	ErrOwner           Code = 12
	ErrAddress         Code = 13
	ErrKind            Code = 14
	ErrExists          Code = 15
	ErrBounds          Code = 16
	ErrShared          Code = 17
	ErrDuplicate       Code = 18
	ErrOverflow        Code = 20
	ErrLamports        Code = 21
	ErrRent            Code = 22
	ErrIndex           Code = 30
	ErrPath            Code = 31
	ErrRoot            Code = 32
	ErrNoInstruction   Code = 40
	ErrPrecompile      Code = 41
	ErrMessage         Code = 42
	ErrRuntime         Code = 50
	ErrParams          Code = 100
	ErrAuthority       Code = 101
	ErrMint            Code = 102
	ErrTokenOwner      Code = 103
	ErrKeySet          Code = 104
	ErrThreshold       Code = 105
	ErrRefunded        Code = 106
	ErrOpened          Code = 107
	ErrDeadline        Code = 108
	ErrEarly           Code = 109
	ErrAmount          Code = 110
	ErrNothingDue      Code = 111
	ErrLeaf            Code = 112
	ErrSum             Code = 113
	ErrVoucher         Code = 114
	ErrReceipt         Code = 115
	ErrRetired         Code = 116
	ErrOutstanding     Code = 117
	ErrFees            Code = 118
	ErrStandby         Code = 119
	ErrNotOwner        Code = 140
	ErrZeroKey         Code = 141
	ErrStakeShort      Code = 144
	ErrMinStake        Code = 145
	ErrBonded          Code = 146
	ErrEvidenceKind    Code = 150
	ErrSigner          Code = 151
	ErrNotReporter     Code = 152
	ErrReporters       Code = 153
	ErrOtherNetwork    Code = 154
	ErrParties         Code = 155
	ErrOneLease        Code = 156
	ErrLeaseOrder      Code = 157
	ErrNoOverlap       Code = 158
	ErrUnitCount       Code = 159
	ErrNotItsKey       Code = 160
	ErrNotOver         Code = 161
	ErrTooOld          Code = 162
	ErrSlashedBefore   Code = 163
	ErrNothingStaked   Code = 164
	ErrStatement       Code = 165
	ErrOtherAnswer     Code = 166
	ErrNotPicked       Code = 167
	ErrNoLie           Code = 168
	ErrNoVotes         Code = 180
	ErrNotBonded       Code = 181
	ErrFrozen          Code = 182
	ErrSubject         Code = 183
	ErrOver            Code = 184
	ErrNotCarried      Code = 185
	ErrSuperseded      Code = 186
	ErrEpoch           Code = 187
	ErrAllowance       Code = 188
	ErrClaimed         Code = 189
	ErrQuorum          Code = 190
)

var meanings = map[Code]string{
	ErrData:            "The instruction's data is too short, too long, or not of its form",
	ErrInstruction:     "No instruction has this number",
	ErrTooManyAccounts: "More accounts than an instruction may have",
	ErrAccountCount:    "Not the number of accounts that the instruction takes",
	ErrInput:           "The loader's input is not of the known form",
	ErrNotSigner:       "It must sign",
	ErrNotWritable:     "It must be writable",
	ErrOwner:           "It belongs to another program",
	ErrAddress:         "It has another address than it must have",
	ErrKind:            "It is of another kind or version, or not initialized",
	ErrExists:          "It exists already",
	ErrBounds:          "Bytes outside of its data",
	ErrShared:          "A view of it was asked for that somebody may change",
	ErrDuplicate:       "It stands twice where two are needed",
	ErrOverflow:        "A sum, difference or product does not fit",
	ErrLamports:        "More lamports than it has",
	ErrRent:            "The cluster's rent is of a form that is not known here",
	ErrIndex:           "No such leaf, or too many leaves",
	ErrPath:            "The path is not as long as index and count demand",
	ErrRoot:            "The path leads to another root",
	ErrNoInstruction:   "There is no such instruction",
	ErrPrecompile:      "It is not the signature precompile's, or not of the one form that is taken (see ed25519)",
	ErrMessage: "What it shows to be signed is something else: " +
		"another kind of object, network, program or chain",
	ErrRuntime:   "A syscall failed where it cannot",
	ErrParams:    "The network's parameters break a rule",
	ErrAuthority: "It is not the network's authority, or the network has none any more",
	ErrMint: "No such mint on the network, another mint than the one needed, " +
		"or one whose tokens cannot be burned",
	ErrTokenOwner:   "The token account belongs to another wallet",
	ErrKeySet:       "Not 1 to 5 keys that can sign, strictly ascending, with a threshold that they can reach",
	ErrThreshold:    "Fewer voucher keys signed than must, or another key, or not in ascending order",
	ErrRefunded:     "The escrow was refunded",
	ErrOpened:       "The opening slot named is not of the last 150",
	ErrDeadline:     "The deadline has passed, or is none that can be set",
	ErrEarly:        "It may be done later, not yet",
	ErrAmount:       "More than is free in the escrow, or nothing where something must be",
	ErrNothingDue:   "There is nothing to pay or to free",
	ErrLeaf:         "The leaf's slots are none, or its escrow's tranche has another number",
	ErrSum:          "The sums on the path do not add up to the root's",
	ErrVoucher:      "The voucher is malformed or of another escrow",
	ErrReceipt:      "The receipt is malformed or not final",
	ErrRetired:      "The leaf was retired and its window is over, or it is being retired already",
	ErrOutstanding:  "Something is still owed, or a tranche still open",
	ErrFees:         "Fees must be swept first",
	ErrStandby:      "No such standby, or the buyer did not allow that much for it",
	ErrNotOwner:     "It is not the provider's owner (nor, for what that may, its peer key)",
	ErrZeroKey:      "Owner or payout would be nobody",
	ErrStakeShort:   "More than the provider's stake",
	ErrMinStake:     "The provider's stake is less than the network's least",
	ErrBonded:       "That part of the stake is bonded: it has to be released first",
	ErrEvidenceKind: "No evidence is of this kind",
	ErrSigner:       "The signatures are not those of the receipt's provider and buyer, in this order",
	ErrNotReporter:  "Only who showed a receipt may end its account",
	ErrReporters:    "The receipts were shown by two",
	ErrOtherNetwork: "The receipt was shown on another network",
	ErrParties:      "The receipts are by two providers",
	ErrOneLease:     "Both receipts are of one lease",
	ErrLeaseOrder:   "The receipt of the lease with the lower id does not come first",
	ErrNoOverlap:    "The receipts share no slot",
	ErrUnitCount:    "The unit proof is among another number of units than the receipt has",
	ErrNotItsKey:    "They are by another key than the provider's",
	ErrNotOver:      "The receipt, or the window, ends after the present",
	ErrTooOld:       "The receipt, or the window, is older than evidence may be",
	ErrSlashedBefore: "The receipt, or the window, ends no later than the slot " +
		"in which the provider was last slashed",
	ErrNothingStaked: "The provider has nothing that could be taken",
	ErrStatement:     "The statement is malformed, of another kind, or not by whom it names",
	ErrOtherAnswer:   "The statement is of another answer, or passes nothing",
	ErrNotPicked:     "A member did not have to compute this value",
	ErrNoLie: "The value, or the output, is right; or the answers are to two questions, say the same, " +
		"or stand in the other order",
	ErrNoVotes:    "Nothing is voted on in this network, or nothing is emitted",
	ErrNotBonded:  "The provider has nothing bonded, not so much, or bonded it after the ballot was opened",
	ErrFrozen:     "It took part in a vote that has not ended",
	ErrSubject:    "No ballot is about this, or this ballot is about something else",
	ErrOver:       "The ballot is over",
	ErrNotCarried: "Too little of what is bonded is for it",
	ErrSuperseded: "The rules were changed since the ballot was opened",
	ErrEpoch:      "The epoch is not over yet, or was over more than a month ago",
	ErrAllowance:  "More than the epoch may give",
	ErrClaimed:    "The leaf was claimed before",
	ErrQuorum:     "Less is bonded in the network than must be for a vote",
}
