package main

import (
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// Layouts that stand in several accounts and calls: PROTOCOL.md, sections 2 and 4.
var types = []struct {
	name string
	of   node
}{
	{"votes", structure(f("votingSlots", u64), f("lockSlots", u64), f("leastBonded", u64), f("leastBond", u64),
		f("emission", u64), f("firstSlot", u64), f("epochSlots", u64), f("epochsOfMonth", u32))},
	{"mintTerms", structure(f("mint", key), f("feeBps", u16), f("burnBps", u16), f("poolBps", u16),
		f("treasuryBps", u16), f("referrerBps", u16), f("decimals", u8), zeros("reserved", sized(5), 5))},
	{"params", structure(f("network", text(sign.NetworkSize)), f("chain", hash), f("treasury", key),
		f("authority", key), f("stakeMint", key), f("marginSlots", u32), f("responseSlots", u32),
		f("unbondingSlots", u64), f("evidenceSlots", u64), f("minStake", u64), zeros("reserved", after(1, sized(7)), 7),
		f("votes", link("votes")), f("auditSlots", u32),
		f("mints", array(link("mintTerms"), counted(-72, "relative"))))},
	{"fees", structure(f("feeBps", u16), f("burnBps", u16), f("poolBps", u16), f("treasuryBps", u16),
		f("referrerBps", u16), zeros("reserved", sized(6), 6))},
	{"rules", rules(rest)},
	{"rulesOfBallot", rules(times(account.MaxMints))},
	{"rewards", structure(f("source", u8), zeros("reserved", sized(3), 3), f("count", u32), f("epoch", u64),
		f("sum", u64), f("root", hash), f("table", hash))},
	{"standby", structure(f("provider", key), f("payout", key), f("maxRate", u64), f("budget", u64))},
	{"leafState", structure(f("paid", u64), f("freed", u64), f("window", u32))},
	{"leaseTerms", structure(f("rate", u64), f("cap", u64), f("start", u64), f("end", u64))},
	{"standbyLeaf", structure(f("standby", u8), f("lease", hash), f("terms", link("leaseTerms")))},
	{"sumNode", structure(f("hash", hash), f("sum", u64))},
	{"unitProof", structure(f("index", u16), f("units", u16), f("path", path))},
	{"receiptCore", structure(f("version", u8), f("flags", u8), f("units", u16), f("rankEpoch", u32), f("lease", hash),
		f("seq", u64), f("prev", hash), f("provider", key), f("buyer", key), f("unitsRoot", hash),
		f("supervision", u64), f("from", u64), f("to", u64), f("cpuMillis", u64), f("amount", u64),
		f("cumulative", u64), f("output", hash))},
}

var path, sums = array(hash, prefixed(u8)), array(link("sumNode"), prefixed(u8))

func rules(count node) node {
	return structure(f("responseSlots", u32), zeros("reserved", sized(4), 4), f("unbondingSlots", u64),
		f("minStake", u64), f("fees", array(link("fees"), count)))
}

// stored describes one kind of account. Two accounts of the same kind differ in the byte sub, which is 0 if there is
// only one.
type stored struct {
	name, pda string
	sample    interface{ Marshal() []byte }
	sub       int
	fields    []field // after kind and version
}

var accounts = []stored{
	{"network", "network", account.NewNetwork(account.Params{}), 0,
		[]field{f("bump", u8), zeros("reserved", sized(5), 5), f("authority", key), f("params", link("params")),
			f("sequence", u64), f("bonded", u64), f("emitted", u64), f("rules", link("rules"))}},
	{"escrow", "escrow", account.Escrow{}, 0, []field{f("bump", u8), f("vaultBump", u8), f("state", u8),
		f("mintIndex", u8), zeros("reserved", sized(2), 2), f("network", key), f("buyer", key), f("order", hash),
		f("mint", key), f("vault", key), f("refundOwner", key), f("referrer", key), f("rentPayer", key),
		f("opened", u64), f("deadline", u64), f("deposited", u64), f("outstanding", u64), f("paid", u64), f("fee", u64),
		f("swept", u64), f("refunded", u64), f("tranches", u16), f("closed", u16), f("threshold", after(1, u8)),
		zeros("reserved2", after(1, sized(9)), 9), f("keys", array(key, counted(332, "absolute"))),
		f("standbys", array(link("standby"), counted(334, "absolute")))}},
	{"tranche", "tranche", account.Tranche{}, 0, []field{f("bump", u8), f("by", u8), zeros("reserved", sized(4), 4),
		f("escrow", key), f("index", u16), f("count", u16), zeros("reserved2", sized(4), 4), f("opened", u64),
		f("sum", u64), f("root", hash), f("outstanding", u64), f("rentPayer", key),
		f("leaves", array(link("leafState"), rest))}},
	{"provider", "provider", account.Provider{}, 0, []field{f("bump", u8), f("wasSlashed", yesno), f("vaultBump", u8),
		zeros("reserved", sized(3), 3), f("network", key), f("peer", key), f("owner", key), f("payout", key),
		f("inventory", hash), f("stake", u64), f("unbonding", u64), f("ready", u64), f("slashed", u64),
		f("registered", u64), f("sequence", u64), f("bonded", u64), f("raised", u64), f("frozen", u64),
		zeros("reserved2", sized(16), 16)}},
	{"attested", "attested", program.Attested{}, 0,
		[]field{f("bump", u8), zeros("reserved", sized(5), 5), f("network", key), f("reporter", key),
			f("core", link("receiptCore")), f("slot", u64)}},
	{"anchored", "anchor", account.Anchored{}, 0, []field{zeros("reserved", sized(6), 6), f("authority", key),
		f("root", hash), f("count", u64), f("slot", u64)}},
	{"ballotOnRules", "ballot", account.Ballot{Subject: account.SubjectRules}, int(account.SubjectRules),
		append(ballot(account.SubjectRules), f("rules", link("rulesOfBallot")))},
	{"ballotOnRewards", "ballot", account.Ballot{Subject: account.SubjectRewards}, int(account.SubjectRewards),
		append(ballot(account.SubjectRewards), f("rewards", link("rewards")))},
	{"vote", "vote", account.Vote{}, 0, []field{f("bump", u8), f("choice", yesno), zeros("reserved", sized(4), 4),
		f("ballot", key), f("provider", key), f("rentPayer", key), f("ends", u64), f("weight", u64)}},
	{"payout", "payout", account.Payout{}, 0, []field{f("bump", u8), f("source", u8), f("vaultBump", u8),
		zeros("reserved", sized(3), 3), f("network", key), f("rentPayer", key), f("root", hash), f("epoch", u64),
		f("sum", u64), f("paid", u64), f("stays", u64), f("count", u32), f("claims", u32),
		f("claimed", node{"kind": "bytesTypeNode"})}},
	{"stated", "stated", program.Stated{What: program.StatementShown}, 0,
		[]field{f("bump", u8), f("what", u8), zeros("reserved", sized(4), 4), f("network", key), f("reporter", key),
			f("signer", key), f("slot", u64), f("statement", node{"kind": "bytesTypeNode"})}},
}

func ballot(on account.Subject) []field {
	return []field{f("bump", u8), always("subject", int(on)), f("done", yesno), zeros("reserved", sized(3), 3),
		f("network", key), f("proposer", key), f("rentPayer", key), f("opened", u64), f("ends", u64), f("ripe", u64),
		f("dead", u64), f("total", u64), f("for", u64), f("against", u64), f("sequence", u64)}
}

// call describes one call of the program. Its accounts come from the sample, its documentation from the Go type.
type call struct {
	name   string
	sample program.Call
	data   []field // after the first byte
	more   string  // name of the remaining accounts; "" if there are none
	signs  bool    // the remaining accounts sign
}

var ed, opened, amount = f("ed", u8), f("opened", u64), f("amount", u64)

var calls = []call{
	{"initNetwork", program.InitNetwork{}, []field{f("params", link("params"))}, "mints", false},
	{"setAuthority", program.SetAuthority{}, []field{f("new", key)}, "", false},
	{"initPool", program.InitPool{}, []field{f("index", u8)}, "", false},
	{"openEscrow", program.OpenEscrow{}, []field{f("order", hash), opened, f("deadline", u64), f("deposit", u64),
		f("referrer", key), f("refundOwner", key), f("mintIndex", u8), f("threshold", u8),
		f("standbys", array(link("standby"), prefixed(u8)))}, "voucherKeys", true},
	{"addTranche", program.AddTranche{}, []field{f("index", u16), f("root", hash), f("sum", u64), f("count", u16)}, "",
		false},
	{"addStandbyTranche", program.AddStandbyTranche{},
		[]field{f("index", u16), f("leaves", array(link("standbyLeaf"), prefixed(u8)))},
		"voucherKeys", true},
	{"topUp", program.TopUp{}, []field{amount}, "", false},
	{"claim", program.Claim{}, []field{ed, f("leaf", u16), f("leafProvider", key), f("terms", link("leaseTerms")),
		f("path", sums)},
		"", false},
	{"retireBegin", program.RetireBegin{}, []field{always("mode", 0), f("leaf", u16)}, "signers", true},
	{"retireFinish", program.RetireFinish{}, []field{always("mode", 1), f("leaf", u16), f("leafProvider", key),
		f("lease", hash), f("leafPayout", key), f("terms", link("leaseTerms")), f("path", sums)}, "", false},
	{"retireFinal", program.RetireFinal{}, []field{always("mode", 2), ed, f("leaf", u16), f("leafPayout", key),
		f("terms", link("leaseTerms")), f("path", sums)}, "", false},
	{"refund", program.Refund{}, nil, "", false},
	{"sweep", program.Sweep{}, nil, "", false},
	{"closeTranche", program.CloseTranche{}, nil, "", false},
	{"closeEscrow", program.CloseEscrow{}, nil, "", false},
	{"register", program.Register{}, []field{f("payout", key), f("inventory", hash)}, "", false},
	{"update", program.Update{}, []field{f("fields", u8), f("values", array(hash, rest))}, "", false},
	{"stake", program.Stake{}, []field{amount}, "", false},
	{"requestUnstake", program.RequestUnstake{}, []field{amount}, "", false},
	{"withdraw", program.Withdraw{}, nil, "", false},
	{"attest", program.Attest{}, []field{ed}, "", false},
	{"closeAttested", program.CloseAttested{}, nil, "", false},
	{"slash", program.Slash{}, []field{always("evidence", 1), f("unit", hash), f("inA", link("unitProof")),
		f("inB", link("unitProof"))},
		"", false},
	{"anchor", program.Anchor{}, []field{f("root", hash), f("count", u64)}, "", false},
	{"prove", program.Prove{}, []field{f("receipt", hash), f("index", u64), f("path", path)}, "", false},
	{"closeAnchor", program.CloseAnchor{}, nil, "", false},
	{"drawPool", program.DrawPool{}, []field{amount}, "", false},
	{"initEmission", program.InitEmission{}, nil, "", false},
	{"bond", program.Bond{}, []field{amount}, "", false},
	{"release", program.Release{}, []field{amount}, "", false},
	{"proposeRules", program.ProposeRules{}, []field{opened, always("subject", int(account.SubjectRules)),
		f("rules", link("rules"))},
		"", false},
	{"proposeRewards", program.ProposeRewards{}, []field{opened, always("subject", int(account.SubjectRewards)),
		f("rewards", link("rewards"))}, "", false},
	{"castVote", program.CastVote{}, []field{f("choice", yesno)}, "", false},
	{"closeVote", program.CloseVote{}, nil, "", false},
	{"enact", program.Enact{}, nil, "", false},
	{"closeBallot", program.CloseBallot{}, nil, "", false},
	{"accept", program.Accept{}, nil, "", false},
	{"claimReward", program.ClaimReward{}, []field{f("index", u32), amount, f("path", path)}, "", false},
	{"closePayout", program.ClosePayout{}, nil, "", false},
	{"state", program.State{}, []field{ed, f("what", u8)}, "", false},
	{"closeStated", program.CloseStated{}, nil, "", false},
	{"slashTwoAnswers", program.SlashAudit{Kind: audit.TwoAnswers}, []field{always("lie", int(audit.TwoAnswers))}, "",
		false},
	{"slashWrongValue", program.SlashAudit{Kind: audit.FalseOpening},
		[]field{f("lie", u8), f("value", u8), f("index", u16), f("count", u16), f("answer", sized(audit.AnswerSize)),
			f("leaf", u32), f("values", array(i32, times(len(challenge.Opening{}.Values)))), f("path", path)}, "",
		false},
}

// pda is an address: a word and the other inputs of its hash (account/address.go).
type pda struct {
	name, word string
	seeds      []field
}

var pdas = []pda{
	{"network", "network", []field{f("paramsHash", hash)}},
	{"pool", "pool", []field{f("network", key), f("mint", key)}},
	{"escrow", "escrow", []field{f("network", key), f("buyer", key), f("order", hash), opened}},
	{"vault", "vault", []field{f("escrow", key)}},
	{"tranche", "tranche", []field{f("escrow", key), f("index", u16)}},
	{"provider", "provider", []field{f("network", key), f("peer", key)}},
	{"stakeVault", "stake", []field{f("provider", key)}},
	{"attested", "attested", []field{f("network", key), f("reporter", key), f("receipt", hash)}},
	{"anchor", "anchor", []field{f("authority", key), f("root", hash)}},
	{"emission", "emission", []field{f("network", key)}},
	{"ballot", "ballot", []field{f("network", key), f("provider", key), opened}},
	{"vote", "vote", []field{f("topic", hash), f("provider", key)}},
	{"payout", "payout", []field{f("network", key), f("source", u8), f("epoch", u64)}},
	{"rewardsVault", "rewards", []field{f("payout", key)}},
	{"stated", "stated", []field{f("network", key), f("reporter", key), f("statementHash", hash)}},
}

// programs that calls name.
var programs = []struct {
	name string
	key  sign.Key
}{{"systemProgram", svm.SystemProgram}, {"tokenProgram", svm.TokenProgram},
	{"instructionsSysvar", svm.InstructionsSysvar}}
