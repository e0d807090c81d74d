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
    /// Not the number of accounts that the instruction takes.
    AccountCount = 4,
    /// The loader's input is not of the known form.
    Input = 5,

    // Accounts.
    /// It must sign.
    NotSigner = 10,
    /// It must be writable.
    NotWritable = 11,
    /// It belongs to another program.
    Owner = 12,
    /// It has another address than it must have.
    Address = 13,
    /// It is of another kind or version, or not initialized.
    Kind = 14,
    /// It exists already.
    Exists = 15,
    /// Bytes outside of its data.
    Bounds = 16,
    /// A view of it was asked for that somebody may change.
    Shared = 17,
    /// It stands twice where two are needed.
    Duplicate = 18,

    // Amounts.
    /// A sum, difference or product does not fit.
    Overflow = 20,
    /// More lamports than it has.
    Lamports = 21,
    /// The cluster's rent is of a form that is not known here.
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
    /// It is not the signature precompile's, or not of the one form that is taken (see ed25519).
    Precompile = 41,
    /// What it shows to be signed is something else: another kind of object, network, program or chain.
    Message = 42,

    /// A syscall failed where it cannot.
    Runtime = 50,

    // Networks and escrows: 100 to 139.
    /// The network's parameters break a rule.
    Params = 100,
    /// It is not the network's authority, or the network has none any more.
    Authority = 101,
    /// No such mint on the network, another mint than the one needed, or one whose tokens cannot be burned.
    Mint = 102,
    /// The token account belongs to another wallet.
    TokenOwner = 103,
    /// Not 1 to 5 keys that can sign, strictly ascending, with a threshold that they can reach.
    KeySet = 104,
    /// Fewer voucher keys signed than must, or another key, or not in ascending order.
    Threshold = 105,
    /// The escrow was refunded.
    Refunded = 106,
    /// The opening slot named is not of the last 150.
    Opened = 107,
    /// The deadline has passed, or is none that can be set.
    Deadline = 108,
    /// It may be done later, not yet.
    Early = 109,
    /// More than is free in the escrow, or nothing where something must be.
    Amount = 110,
    /// There is nothing to pay or to free.
    NothingDue = 111,
    /// The leaf's slots are none, or its escrow's tranche has another number.
    Leaf = 112,
    /// The sums on the path do not add up to the root's.
    Sum = 113,
    /// The voucher is malformed or of another escrow.
    Voucher = 114,
    /// The receipt is malformed or not final.
    Receipt = 115,
    /// The leaf was retired and its window is over, or it is being retired already.
    Retired = 116,
    /// Something is still owed, or a tranche still open.
    Outstanding = 117,
    /// Fees must be swept first.
    Fees = 118,
    /// No such standby, or the buyer did not allow that much for it.
    Standby = 119,

    // Providers, stake and slashing: 140 to 179.
    /// It is not the provider's owner (nor, for what that may, its peer key).
    NotOwner = 140,
    /// Owner or payout would be nobody.
    ZeroKey = 141,
    /// More than the provider's stake.
    StakeShort = 144,
    /// The provider's stake is less than the network's least.
    MinStake = 145,
    /// That part of the stake is bonded: it has to be released first.
    Bonded = 146,
    /// No evidence is of this kind.
    EvidenceKind = 150,
    /// The signatures are not those of the receipt's provider and buyer, in this order.
    Signer = 151,
    /// Only who showed a receipt may end its account.
    NotReporter = 152,
    /// The receipts were shown by two.
    Reporters = 153,
    /// The receipt was shown on another network.
    OtherNetwork = 154,
    /// The receipts are by two providers.
    Parties = 155,
    /// Both receipts are of one lease.
    OneLease = 156,
    /// The receipt of the lease with the lower id does not come first.
    LeaseOrder = 157,
    /// The receipts share no slot.
    NoOverlap = 158,
    /// The unit proof is among another number of units than the receipt has.
    UnitCount = 159,
    /// They are by another key than the provider's.
    NotItsKey = 160,
    /// The receipt, or the window, ends after the present.
    NotOver = 161,
    /// The receipt, or the window, is older than evidence may be.
    TooOld = 162,
    /// The receipt, or the window, ends no later than the slot in which the provider was last slashed.
    SlashedBefore = 163,
    /// The provider has nothing that could be taken.
    NothingStaked = 164,
    /// The statement is malformed, of another kind, or not by whom it names.
    Statement = 165,
    /// The statement is of another answer, or passes nothing.
    OtherAnswer = 166,
    /// A member did not have to compute this value.
    NotPicked = 167,
    /// The value is right; or the answers are to two questions, say the same, or stand in the other order.
    NoLie = 168,

    // Votes and rewards: 180 to 199.
    /// Nothing is voted on in this network, or nothing is emitted.
    NoVotes = 180,
    /// The provider has nothing bonded, less than it must have, or bonded it after the ballot was opened.
    NotBonded = 181,
    /// It took part in a vote that has not ended.
    Frozen = 182,
    /// No ballot is about this, or this ballot is about something else.
    Subject = 183,
    /// The ballot is over.
    Over = 184,
    /// Too little of what is bonded is for it.
    NotCarried = 185,
    /// The rules were changed since the ballot was opened.
    Superseded = 186,
    /// The epoch is not over yet, or was over more than a month ago.
    Epoch = 187,
    /// More than the epoch may give.
    Allowance = 188,
    /// The leaf was claimed before.
    Claimed = 189,
    /// Less is bonded in the network than must be for a vote.
    Quorum = 190,
}
