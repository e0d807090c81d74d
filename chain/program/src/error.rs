//! Everything that can be refused. The number is what a transaction's error shows ("custom program error: 0x…").

pub type Result<T> = core::result::Result<T, Error>;

/// Numbers are part of the protocol: they are never reused.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    // What the loader handed over.
    /// The instruction's data is too short, too long, or not of its form.
    Data = 1,
    /// No instruction has this number.
    Instruction = 2,
    /// More accounts than an instruction may have.
    TooManyAccounts = 3,
    /// The number of accounts is not the instruction's.
    AccountCount = 4,
    /// The loader's input has an unknown form.
    Input = 5,

    // Accounts.
    /// The account must sign.
    NotSigner = 10,
    /// The account must be writable.
    NotWritable = 11,
    /// The account belongs to another program.
    Owner = 12,
    /// The account's address is not the expected one.
    Address = 13,
    /// The account is of another kind or version, or not initialized.
    Kind = 14,
    /// The account exists already.
    Exists = 15,
    /// The offset is outside of the account's data.
    Bounds = 16,
    /// A shared view of the data requires a read-only account.
    Shared = 17,
    /// The same account is given twice, where two are needed.
    Duplicate = 18,

    // Amounts.
    /// A sum, difference or product does not fit.
    Overflow = 20,
    /// More lamports than the account has.
    Lamports = 21,
    /// The cluster's rent has an unknown form.
    Rent = 22,

    // Merkle proofs.
    /// No such leaf, or too many leaves.
    Index = 30,
    /// The path is not as long as index and count demand.
    Path = 31,
    /// The path leads to another root.
    Root = 32,

    // The transaction's other instructions.
    /// There is no such instruction.
    NoInstruction = 40,
    /// The instruction is not the signature precompile's, or not of the accepted form (see ed25519).
    Precompile = 41,
    /// The signed message is for another kind of object, network, program or chain.
    Message = 42,

    /// A syscall failed unexpectedly.
    Runtime = 50,

    // Networks and escrows: 100 to 139.
    /// The network's parameters break a rule.
    Params = 100,
    /// The signer is not the network's authority, or the network has no authority.
    Authority = 101,
    /// The mint is not the network's or not the needed one, or its tokens cannot be burned.
    Mint = 102,
    /// The token account belongs to another wallet.
    TokenOwner = 103,
    /// The key set is not 1 to 5 valid keys, strictly ascending, with a reachable threshold.
    KeySet = 104,
    /// Fewer voucher keys signed than the threshold, or another key, or not in ascending order.
    Threshold = 105,
    /// The escrow was refunded.
    Refunded = 106,
    /// The opening slot is not one of the last 150.
    Opened = 107,
    /// The deadline has passed, or is not allowed.
    Deadline = 108,
    /// The action is allowed only later.
    Early = 109,
    /// The amount exceeds the escrow's free money, or is zero.
    Amount = 110,
    /// There is nothing to pay or to free.
    NothingDue = 111,
    /// The leaf has no slots, or the escrow's next tranche has another number.
    Leaf = 112,
    /// The sums on the path do not add up to the root's.
    Sum = 113,
    /// The voucher is malformed or of another escrow.
    Voucher = 114,
    /// The receipt is malformed or not final.
    Receipt = 115,
    /// The leaf was retired and its window is over, or it is being retired already.
    Retired = 116,
    /// Money is still outstanding, or a tranche is still open.
    Outstanding = 117,
    /// The fees must be swept first.
    Fees = 118,
    /// No such standby, or its budget is exceeded.
    Standby = 119,

    // Providers, stake and slashing: 140 to 179.
    /// The signer is not the provider's owner (nor its peer key, where that suffices).
    NotOwner = 140,
    /// The owner or payout key is zero.
    ZeroKey = 141,
    /// More than the provider's stake.
    StakeShort = 144,
    /// The provider's stake is less than the network's minimum.
    MinStake = 145,
    /// The stake is bonded: release the bond first.
    Bonded = 146,
    /// The kind of evidence is unknown.
    EvidenceKind = 150,
    /// The signatures are not those of the receipt's provider and buyer, in this order.
    Signer = 151,
    /// Only the reporter of a receipt may close its account.
    NotReporter = 152,
    /// The receipts have different reporters.
    Reporters = 153,
    /// The receipt was reported on another network.
    OtherNetwork = 154,
    /// The receipts are by different providers.
    Parties = 155,
    /// Both receipts are of one lease.
    OneLease = 156,
    /// The receipt of the lease with the lower id does not come first.
    LeaseOrder = 157,
    /// The receipts share no slot.
    NoOverlap = 158,
    /// The unit proof's number of units differs from the receipt's.
    UnitCount = 159,
    /// The evidence is signed by another key than the provider's.
    NotItsKey = 160,
    /// The receipt, or the window, ends in the future.
    NotOver = 161,
    /// The receipt, or the window, is older than evidence may be.
    TooOld = 162,
    /// The receipt, or the window, ends no later than the provider's last slash.
    SlashedBefore = 163,
    /// The provider has no stake to slash.
    NothingStaked = 164,
    /// The statement is malformed, of another kind, or not signed by the key that it names.
    Statement = 165,
    /// The statement is of another answer, or passes nothing.
    OtherAnswer = 166,
    /// The member was not assigned this value.
    NotPicked = 167,
    /// The value or output is correct, or the answers are to two questions, equal, or swapped.
    NoLie = 168,

    // Votes and rewards: 180 to 199.
    /// The network has no votes, or no emission.
    NoVotes = 180,
    /// The provider's bond is missing, too small, or newer than the ballot.
    NotBonded = 181,
    /// The bond is frozen until a vote ends.
    Frozen = 182,
    /// The subject of the ballot is unknown, or another one.
    Subject = 183,
    /// The ballot has ended.
    Over = 184,
    /// The votes for the ballot are too few.
    NotCarried = 185,
    /// The rules were changed since the ballot was opened.
    Superseded = 186,
    /// The epoch has not ended, or ended more than a month ago.
    Epoch = 187,
    /// The amount exceeds the epoch's allowance.
    Allowance = 188,
    /// The leaf was claimed before.
    Claimed = 189,
    /// The stake bonded in the network is below the quorum.
    Quorum = 190,
}
