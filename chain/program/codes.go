package program

// The program's error codes. Names and sentences equal src/error.rs; a test compares them.
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
	ErrAccountCount:    "The number of accounts is not the instruction's",
	ErrInput:           "The loader's input has an unknown form",
	ErrNotSigner:       "The account must sign",
	ErrNotWritable:     "The account must be writable",
	ErrOwner:           "The account belongs to another program",
	ErrAddress:         "The account's address is not the expected one",
	ErrKind:            "The account is of another kind or version, or not initialized",
	ErrExists:          "The account exists already",
	ErrBounds:          "The offset is outside of the account's data",
	ErrShared:          "A shared view of the data requires a read-only account",
	ErrDuplicate:       "The same account is given twice, where two are needed",
	ErrOverflow:        "A sum, difference or product does not fit",
	ErrLamports:        "More lamports than the account has",
	ErrRent:            "The cluster's rent has an unknown form",
	ErrIndex:           "No such leaf, or too many leaves",
	ErrPath:            "The path is not as long as index and count demand",
	ErrRoot:            "The path leads to another root",
	ErrNoInstruction:   "There is no such instruction",
	ErrPrecompile:      "The instruction is not the signature precompile's, or not of the accepted form (see ed25519)",
	ErrMessage:         "The signed message is for another kind of object, network, program or chain",
	ErrRuntime:         "A syscall failed unexpectedly",
	ErrParams:          "The network's parameters break a rule",
	ErrAuthority:       "The signer is not the network's authority, or the network has no authority",
	ErrMint:            "The mint is not the network's or not the needed one, or its tokens cannot be burned",
	ErrTokenOwner:      "The token account belongs to another wallet",
	ErrKeySet:          "The key set is not 1 to 5 valid keys, strictly ascending, with a reachable threshold",
	ErrThreshold:       "Fewer voucher keys signed than the threshold, or another key, or not in ascending order",
	ErrRefunded:        "The escrow was refunded",
	ErrOpened:          "The opening slot is not one of the last 150",
	ErrDeadline:        "The deadline has passed, or is not allowed",
	ErrEarly:           "The action is allowed only later",
	ErrAmount:          "The amount exceeds the escrow's free money, or is zero",
	ErrNothingDue:      "There is nothing to pay or to free",
	ErrLeaf:            "The leaf has no slots, or the escrow's next tranche has another number",
	ErrSum:             "The sums on the path do not add up to the root's",
	ErrVoucher:         "The voucher is malformed or of another escrow",
	ErrReceipt:         "The receipt is malformed or not final",
	ErrRetired:         "The leaf was retired and its window is over, or it is being retired already",
	ErrOutstanding:     "Money is still outstanding, or a tranche is still open",
	ErrFees:            "The fees must be swept first",
	ErrStandby:         "No such standby, or its budget is exceeded",
	ErrNotOwner:        "The signer is not the provider's owner (nor its peer key, where that suffices)",
	ErrZeroKey:         "The owner or payout key is zero",
	ErrStakeShort:      "More than the provider's stake",
	ErrMinStake:        "The provider's stake is less than the network's minimum",
	ErrBonded:          "The stake is bonded: release the bond first",
	ErrEvidenceKind:    "The kind of evidence is unknown",
	ErrSigner:          "The signatures are not those of the receipt's provider and buyer, in this order",
	ErrNotReporter:     "Only the reporter of a receipt may close its account",
	ErrReporters:       "The receipts have different reporters",
	ErrOtherNetwork:    "The receipt was reported on another network",
	ErrParties:         "The receipts are by different providers",
	ErrOneLease:        "Both receipts are of one lease",
	ErrLeaseOrder:      "The receipt of the lease with the lower id does not come first",
	ErrNoOverlap:       "The receipts share no slot",
	ErrUnitCount:       "The unit proof's number of units differs from the receipt's",
	ErrNotItsKey:       "The evidence is signed by another key than the provider's",
	ErrNotOver:         "The receipt, or the window, ends in the future",
	ErrTooOld:          "The receipt, or the window, is older than evidence may be",
	ErrSlashedBefore:   "The receipt, or the window, ends no later than the provider's last slash",
	ErrNothingStaked:   "The provider has no stake to slash",
	ErrStatement:       "The statement is malformed, of another kind, or not signed by the key that it names",
	ErrOtherAnswer:     "The statement is of another answer, or passes nothing",
	ErrNotPicked:       "The member was not assigned this value",
	ErrNoLie:           "The value or output is correct, or the answers are to two questions, equal, or swapped",
	ErrNoVotes:         "The network has no votes, or no emission",
	ErrNotBonded:       "The provider's bond is missing, too small, or newer than the ballot",
	ErrFrozen:          "The bond is frozen until a vote ends",
	ErrSubject:         "The subject of the ballot is unknown, or another one",
	ErrOver:            "The ballot has ended",
	ErrNotCarried:      "The votes for the ballot are too few",
	ErrSuperseded:      "The rules were changed since the ballot was opened",
	ErrEpoch:           "The epoch has not ended, or ended more than a month ago",
	ErrAllowance:       "The amount exceeds the epoch's allowance",
	ErrClaimed:         "The leaf was claimed before",
	ErrQuorum:          "The stake bonded in the network is below the quorum",
}
