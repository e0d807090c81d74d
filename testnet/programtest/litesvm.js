// Hosts one LiteSVM for its parent: a JSON request a line on standard input, a JSON answer a line on standard output.
const m = require("litesvm-linux-x64-gnu");
let svm = new m.LiteSvm();
const bytes = (text) => Buffer.from(text, "base64");
const text = (b) => Buffer.from(b).toString("base64");

// The package gives errors without a payload as numbers, and their names only in its types.
const instructionErrors = `
  GenericError InvalidArgument InvalidInstructionData InvalidAccountData AccountDataTooSmall InsufficientFunds IncorrectProgramId
  MissingRequiredSignature AccountAlreadyInitialized UninitializedAccount UnbalancedInstruction ModifiedProgramId
  ExternalAccountLamportSpend ExternalAccountDataModified ReadonlyLamportChange ReadonlyDataModified DuplicateAccountIndex
  ExecutableModified RentEpochModified NotEnoughAccountKeys AccountDataSizeChanged AccountNotExecutable AccountBorrowFailed
  AccountBorrowOutstanding DuplicateAccountOutOfSync InvalidError ExecutableDataModified ExecutableLamportChange
  ExecutableAccountNotRentExempt UnsupportedProgramId CallDepth MissingAccount ReentrancyNotAllowed MaxSeedLengthExceeded InvalidSeeds
  InvalidRealloc ComputationalBudgetExceeded PrivilegeEscalation ProgramEnvironmentSetupFailure ProgramFailedToComplete
  ProgramFailedToCompile Immutable IncorrectAuthority AccountNotRentExempt InvalidAccountOwner ArithmeticOverflow UnsupportedSysvar
  IllegalOwner MaxAccountsDataAllocationsExceeded MaxAccountsExceeded MaxInstructionTraceLengthExceeded
  BuiltinProgramsMustConsumeComputeUnits BorshIoError
`.trim().split(/\s+/);
const transactionErrors = `
  AccountInUse AccountLoadedTwice AccountNotFound ProgramAccountNotFound InsufficientFundsForFee InvalidAccountForFee AlreadyProcessed
  BlockhashNotFound CallChainTooDeep MissingSignatureForFee InvalidAccountIndex SignatureFailure InvalidProgramForExecution
  SanitizeFailure ClusterMaintenance AccountBorrowOutstanding WouldExceedMaxBlockCostLimit UnsupportedVersion InvalidWritableAccount
  WouldExceedMaxAccountCostLimit WouldExceedAccountDataBlockLimit TooManyAccountLocks AddressLookupTableNotFound
  InvalidAddressLookupTableOwner InvalidAddressLookupTableData InvalidAddressLookupTableIndex InvalidRentPayingAccount
  WouldExceedMaxVoteCostLimit WouldExceedAccountDataTotalLimit MaxLoadedAccountsDataSizeExceeded ResanitizationNeeded
  InvalidLoadedAccountsDataSizeLimit UnbalancedTransaction ProgramCacheHitMaxLimit CommitCancelled
`.trim().split(/\s+/);

// failure is an error in the form in which RPC servers give it.
function failure(e) {
  if (typeof e === "number") return transactionErrors[e];
  if (!(e instanceof m.TransactionErrorInstructionError)) return e.constructor.name;
  const inner = e.err();
  if (typeof inner === "number") return { InstructionError: [e.index, instructionErrors[inner]] };
  return { InstructionError: [e.index, inner instanceof m.InstructionErrorCustom ? { Custom: inner.code } : inner.constructor.name] };
}

const account = (key) => {
  const a = svm.getAccount(bytes(key));
  return a && { lamports: Number(a.lamports()), owner: text(a.owner()), data: text(a.data()) };
};

const requests = {
  reset: () => {
    svm = new m.LiteSvm();
    svm.setTransactionHistory(0n); // all steps of a sequence have one blockhash
  },
  put: ({ accounts }) => {
    for (const a of accounts) svm.setAccount(bytes(a.key), new m.Account(BigInt(a.lamports), bytes(a.data ?? ""), bytes(a.owner), false, 0n));
  },
  sequence: ({ steps }) => ({
    steps: steps.map(({ slot, data, keys }) => {
      svm.warpToSlot(BigInt(slot));
      return { ...requests.send({ data }), accounts: keys.map((key) => account(key)) };
    }),
  }),
  program: ({ key, data }) => svm.addProgram(bytes(key), bytes(data)),
  fund: ({ key, lamports }) => {
    if (svm.airdrop(bytes(key), BigInt(lamports)) instanceof m.FailedTransactionMetadata) throw new Error("airdrop failed");
  },
  blockhash: () => {
    svm.expireBlockhash();
    return { blockhash: svm.latestBlockhash() };
  },
  send: ({ data }) => {
    const done = svm.sendVersionedTransaction(bytes(data));
    const failed = done instanceof m.FailedTransactionMetadata;
    const meta = failed ? done.meta() : done;
    return { err: failed ? failure(done.err()) : null, logs: meta.logs(), units: Number(meta.computeUnitsConsumed()) };
  },
  account: ({ key }) => ({ account: account(key) }),
  slot: () => ({ slot: Number(svm.getClock().slot) }),
  warp: ({ slot }) => svm.warpToSlot(BigInt(slot)),
};

require("readline")
  .createInterface({ input: process.stdin })
  .on("line", (line) => {
    let answer;
    try {
      const request = JSON.parse(line);
      answer = requests[request.do](request) ?? {};
    } catch (e) {
      answer = { failed: String(e) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  })
  .on("close", () => process.exit(0));
