package program_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/tranche"
)

var rewrite = flag.Bool("rewrite", false, "write the test vectors instead of checking them")

func key(b byte) sign.Key   { return sign.Key(bytes.Repeat([]byte{b}, sign.KeySize)) }
func hash(b byte) sign.Hash { return sign.Hash(bytes.Repeat([]byte{b}, sign.HashSize)) }

var programID = sign.NewPrivate(sign.Sum([]byte("program"))).Key()

func exampleParams() program.Params {
	return program.Params{
		Network: "test", Chain: hash(2), Treasury: key(3), Authority: key(4), StakeMint: key(5), MarginSlots: 300, ResponseSlots: 200,
		UnbondingSlots: 1000, EvidenceSlots: 999, MinStake: 77, AuditSlots: 9,
		Votes: program.Votes{VotingSlots: 20, LockSlots: 10, LeastBonded: 5000, LeastBond: 500, Emission: 900_000, FirstSlot: 400, EpochSlots: 50, EpochsOfMonth: 30},
		Mints: []program.MintTerms{
			{Mint: key(7), FeeBps: 50, BurnBps: 5000, PoolBps: 2500, TreasuryBps: 1500, ReferrerBps: 1000, Decimals: 6},
			{Mint: key(8), FeeBps: 1000, BurnBps: 2000, TreasuryBps: 8000, Decimals: 9},
		},
	}
}

func exampleCore() verify.ReceiptCore {
	return verify.ReceiptCore{
		Version: 1, Flags: verify.ReceiptFinal, Units: 2, RankEpoch: 3, Lease: market.LeaseID(hash(4)), Seq: 5, Prev: hash(6), Provider: key(7),
		Buyer: key(8), UnitsRoot: hash(9), Supervision: 10, From: 11, To: 12, CPUMillis: 13, Amount: 14, Cumulative: 15, Output: hash(16),
	}
}

func exampleEscrow() program.Escrow {
	return program.Escrow{
		Bump: 247, VaultBump: 248, State: program.EscrowRefunded, MintIndex: 1, Network: key(1), Buyer: key(2), Order: market.OrderID(hash(3)), Mint: key(4),
		Vault: key(5), RefundOwner: key(6), Referrer: key(7), RentPayer: key(8), Opened: 9, Deadline: 10, Deposited: 11, Outstanding: 12, Paid: 13, Fee: 14,
		Swept: 15, Refunded: 16, Tranches: 17, Closed: 18, Keys: market.KeySet{Threshold: 2, Keys: []sign.Key{key(19), key(20), key(21)}},
		Standbys: []program.Standby{{Provider: key(22), Payout: key(23), MaxRate: 24, Budget: 25}, {Provider: key(26), Payout: key(27), MaxRate: 28, Budget: 29}},
	}
}

type marshaler interface{ Marshal() []byte }

// accounts are one of each kind, and how they are read.
var accounts = []struct {
	name    string
	example marshaler
	size    int
	read    func([]byte) (marshaler, error)
}{
	{"network", exampleNetwork(), program.NetworkSize(2),
		func(b []byte) (marshaler, error) { return program.UnmarshalNetwork(b) }},
	{"escrow", exampleEscrow(), program.EscrowSize(3, 2), func(b []byte) (marshaler, error) { return program.UnmarshalEscrow(b) }},
	{"tranche", program.Tranche{Bump: 249, By: program.ByKeys, Escrow: key(1), Index: 258, Opened: 3, Sum: 4, Root: hash(5), Outstanding: 6, RentPayer: key(7),
		Leaves: []program.LeafState{{Paid: 8, Freed: 9, Window: 10}, {Paid: 11, Freed: 12}}}, program.TrancheSize(2),
		func(b []byte) (marshaler, error) { return program.UnmarshalTranche(b) }},
	{"provider", program.Provider{Bump: 251, VaultBump: 252, WasSlashed: true, Network: key(1), Peer: key(2), Owner: key(5),
		Payout: key(6), Inventory: hash(7), Stake: 9, Unbonding: 10, Ready: 11, Slashed: 12, Registered: 13, Sequence: 14, Bonded: 15, Raised: 16,
		Frozen: 17}, program.ProviderSize,
		func(b []byte) (marshaler, error) { return program.UnmarshalProvider(b) }},
	{"attested", program.Attested{Bump: 253, Network: key(1), Reporter: key(2), Core: exampleCore(), Slot: 3}, program.AttestedSize,
		func(b []byte) (marshaler, error) { return program.UnmarshalAttested(b) }},
	{"anchor", program.Anchored{Authority: key(1), Root: hash(2), Count: 3, Slot: 4}, program.AnchorSize,
		func(b []byte) (marshaler, error) { return program.UnmarshalAnchored(b) }},
	{"stated", program.Stated{Bump: 250, What: program.StatementShown, Network: key(1), Reporter: key(2), Signer: key(3), Slot: 4, Layout: bytes.Repeat([]byte{5}, 72)},
		program.StatedSize(program.StatementShown), func(b []byte) (marshaler, error) { return program.UnmarshalStated(b) }},
	{"ballot", exampleBallot(program.SubjectRules), program.BallotSize, func(b []byte) (marshaler, error) { return program.UnmarshalBallot(b) }},
	{"ballot on rewards", exampleBallot(program.SubjectRewards), program.BallotSize, func(b []byte) (marshaler, error) { return program.UnmarshalBallot(b) }},
	{"vote", program.Vote{Bump: 250, For: true, Ballot: key(1), Provider: key(2), RentPayer: key(3), Ends: 4, Weight: 5}, program.VoteSize,
		func(b []byte) (marshaler, error) { return program.UnmarshalVote(b) }},
	{"payout", program.Payout{Bump: 250, VaultBump: 251, Source: 2, Network: key(1), RentPayer: key(2), Root: hash(3), Epoch: 4, Sum: 5, Paid: 6, Stays: 7, Count: 9,
		Claims: 8, Claimed: []byte{0xfe, 1}}, program.PayoutSize(9), func(b []byte) (marshaler, error) { return program.UnmarshalPayout(b) }},
}

func exampleNetwork() program.Network {
	n := program.NewNetwork(exampleParams())
	n.Bump, n.Authority, n.Sequence, n.Bonded, n.Emitted = 250, key(9), 10, 11, 12
	n.Rules = exampleRules()
	return n
}

func exampleRules() program.Rules {
	return program.Rules{ResponseSlots: 201, UnbondingSlots: 1002, MinStake: 78, Fees: []program.Fees{
		{FeeBps: 51, BurnBps: 5001, PoolBps: 2499, TreasuryBps: 1501, ReferrerBps: 999}, {FeeBps: 999, BurnBps: 10_000}}}
}

func exampleRewards() program.Rewards {
	return program.Rewards{Source: 2, Count: 3, Epoch: 4, Sum: 5, Root: hash(6), Table: hash(7)}
}

func exampleBallot(s program.Subject) program.Ballot {
	b := program.Ballot{Bump: 249, Subject: s, Done: true, Network: key(1), Proposer: key(2), RentPayer: key(3), Opened: 4, Ends: 5, Ripe: 6, Dead: 7, Total: 8, For: 9,
		Against: 10, Sequence: 11}
	switch s {
	case program.SubjectRules:
		b.Rules = exampleRules()
	case program.SubjectRewards:
		b.Rewards = exampleRewards()
	}
	return b
}

// TestAccountsReadBack: what is written is read as it was, and no other bytes are an account of the kind.
func TestAccountsReadBack(t *testing.T) {
	t.Parallel()
	for _, a := range accounts {
		b := a.example.Marshal()
		if len(b) != a.size {
			t.Errorf("%s: %d bytes, want %d", a.name, len(b), a.size)
		}
		got, err := a.read(b)
		if err != nil || !bytes.Equal(got.Marshal(), b) {
			t.Errorf("%s: %+v, %v", a.name, got, err)
		}
		for cut := range b {
			if _, err := a.read(b[:cut]); !errors.Is(err, program.ErrAccount) {
				t.Errorf("%s: %d of %d bytes read: %v", a.name, cut, len(b), err)
			}
		}
		if _, err := a.read(append(bytes.Clone(b), 0)); !errors.Is(err, program.ErrAccount) {
			t.Errorf("%s with a byte more: %v", a.name, err)
		}
		for _, other := range accounts {
			if _, err := other.read(b); !strings.HasPrefix(a.name, "ballot") && other.name != a.name && !errors.Is(err, program.ErrAccount) {
				t.Errorf("%s reads as %s: %v", a.name, other.name, err)
			}
		}
	}
}

func fuzzAccount(f *testing.F, name string) {
	for _, a := range accounts {
		if a.name != name {
			continue
		}
		f.Add(a.example.Marshal())
		f.Add([]byte{})
		f.Fuzz(func(t *testing.T, b []byte) {
			got, err := a.read(b)
			if err != nil {
				if !errors.Is(err, program.ErrAccount) {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(got.Marshal(), b) {
				t.Fatalf("%x comes back as %x", b, got.Marshal())
			}
		})
	}
}

func FuzzNetwork(f *testing.F)  { fuzzAccount(f, "network") }
func FuzzEscrow(f *testing.F)   { fuzzAccount(f, "escrow") }
func FuzzTranche(f *testing.F)  { fuzzAccount(f, "tranche") }
func FuzzProvider(f *testing.F) { fuzzAccount(f, "provider") }
func FuzzAttested(f *testing.F) { fuzzAccount(f, "attested") }
func FuzzAnchored(f *testing.F) { fuzzAccount(f, "anchor") }
func FuzzStated(f *testing.F)   { fuzzAccount(f, "stated") }
func FuzzVote(f *testing.F)     { fuzzAccount(f, "vote") }
func FuzzPayout(f *testing.F)   { fuzzAccount(f, "payout") }
func FuzzBallot(f *testing.F) {
	f.Add(exampleBallot(program.SubjectRules).Marshal())
	fuzzAccount(f, "ballot on rewards")
}

func FuzzParams(f *testing.F) {
	f.Add(exampleParams().Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := program.UnmarshalParams(b)
		if err == nil && (!bytes.Equal(p.Marshal(), b) || p.Validate() != nil) {
			t.Fatalf("%x comes back as %+v", b, p)
		}
	})
}

func FuzzToken(f *testing.F) {
	f.Add(make([]byte, program.TokenSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := program.UnmarshalToken(b); err != nil && !errors.Is(err, program.ErrAccount) {
			t.Fatal(err)
		}
	})
}

func FuzzSigned(f *testing.F) {
	f.Add(program.Signed{Keys: []sign.Key{key(1), key(2)}, Signatures: make([]sign.Signature, 2), Message: []byte("message")}.Instruction().Data)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, ok := program.ParseSigned(program.Instruction{Program: program.Ed25519Program, Data: b})
		if ok && !bytes.Equal(s.Instruction().Data, b) {
			t.Fatalf("%x comes back as %x", b, s.Instruction().Data)
		}
	})
}

func FuzzError(f *testing.F) {
	f.Add([]byte("Program " + programID.String() + " failed: custom program error: 0xd"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _, _ = program.Refusal(programID, []string{string(b)})
	})
}

func TestErrorsOfTransactions(t *testing.T) {
	t.Parallel()
	us, token := programID.String(), program.TokenProgram.String()
	c, by, ok := program.Refusal(programID, []string{"Program " + us + " invoke [1]", "Program " + us + " failed: custom program error: 0xd"})
	if !errors.Is(c, program.ErrAddress) || by != us || !ok {
		t.Error(c, by, ok)
	}
	c, by, ok = program.Refusal(programID, []string{"Program " + token + " failed: custom program error: 0x1", "Program " + us + " failed: custom program error: 0x1"})
	if c != 1 || by != token || ok {
		t.Error(c, by, ok)
	}
	if _, _, ok := program.Refusal(programID, []string{"Program " + us + " success"}); ok {
		t.Error("a success is taken for a refusal")
	}
	if program.Code(9999).Error() == "" || program.ErrAddress.Error() == program.ErrOwner.Error() {
		t.Error(program.Code(9999), program.ErrAddress)
	}
}

// TestCodesAreThePrograms compares every error's name and number with src/error.rs.
func TestCodesAreThePrograms(t *testing.T) {
	t.Parallel()
	read := func(path, pattern string) map[string]int {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]int{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(b), -1) {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			out[m[1]] = n
		}
		return out
	}
	rust, ours := read("src/error.rs", `(?m)^    (\w+) = (\d+),`), read("codes.go", `(?m)^\tErr(\w+)\s+Code = (\d+)$`)
	if len(rust) < 20 {
		t.Fatalf("%d errors found: the test reads nothing", len(rust))
	}
	for name, n := range rust {
		if ours[name] != n {
			t.Errorf("%s is %d in the program, %d here", name, n, ours[name])
		}
		if strings.Contains(program.Code(n).Error(), "does not know") {
			t.Errorf("%s has no sentence", name)
		}
	}
	for name := range ours {
		if _, there := rust[name]; !there {
			t.Errorf("%s is none of the program's", name)
		}
	}
}

// TestInstructionNumbers compares the first byte of every call with src/lib.rs.
func TestInstructionNumbers(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("src/lib.rs")
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range calls() {
		name, _, _ = strings.Cut(name, " ")
		want := regexp.MustCompile(`pub const ` + name + `: u8 = (\d+);`).FindSubmatch(source)
		if want == nil || string(want[1]) != strconv.Itoa(int(call.Instruction(programID).Data[0])) {
			t.Errorf("%s: %q in the program, %d here", name, want, call.Instruction(programID).Data[0])
		}
	}
}

// TestAddresses compares with what Solana's client library derives.
func TestAddresses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := sign.Key(sign.Sum([]byte(rapid.String().Draw(t, "program"))))
		seeds := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 32), 0, 5).Draw(t, "seeds")
		want, bump, err := solana.ProgramAddress(id, seeds...)
		if err != nil {
			t.Fatal(err)
		}
		if got, gotBump := program.FindAddress(id, seeds...); got != want || gotBump != bump {
			t.Fatalf("%s with %d, want %s with %d", got, gotBump, want, bump)
		}
	})
}

func TestParamsRefuse(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*program.Params){
		"no name":                       func(p *program.Params) { p.Network = "" },
		"a bad name":                    func(p *program.Params) { p.Network = "Test" },
		"evidence as old as unbonding":  func(p *program.Params) { p.EvidenceSlots = p.UnbondingSlots },
		"no time to respond":            func(p *program.Params) { p.ResponseSlots = 0 },
		"no mint":                       func(p *program.Params) { p.Mints = nil },
		"five mints":                    func(p *program.Params) { p.Mints = make([]program.MintTerms, 5) },
		"a mint twice":                  func(p *program.Params) { p.Mints[1].Mint = p.Mints[0].Mint },
		"fee too low":                   func(p *program.Params) { p.Mints[0].FeeBps = program.MinFeeBps - 1 },
		"fee too high":                  func(p *program.Params) { p.Mints[0].FeeBps = program.MaxFeeBps + 1 },
		"burns too little":              func(p *program.Params) { p.Mints[0].BurnBps, p.Mints[0].PoolBps = 1999, 5501 },
		"shares below the whole":        func(p *program.Params) { p.Mints[0].PoolBps-- },
		"shares that wrap to the whole": func(p *program.Params) { p.Mints[0].PoolBps, p.Mints[0].TreasuryBps = 0xffff, 0xffff },
		"no lock":                       func(p *program.Params) { p.Votes.LockSlots = 0 },
		"votes with nothing bonded":     func(p *program.Params) { p.Votes.LeastBonded = 0 },
		"ballots by who bonded nothing": func(p *program.Params) { p.Votes.LeastBond = 0 },
		"terms for votes without any":   func(p *program.Params) { p.Votes.VotingSlots = 0 },
		"epochs without slots":          func(p *program.Params) { p.Votes.EpochSlots = 0 },
		"months without epochs":         func(p *program.Params) { p.Votes.EpochsOfMonth = 0 },
		"months without end":            func(p *program.Params) { p.Votes.EpochSlots = 1 << 60 },
		"too many decimals":             func(p *program.Params) { p.Mints[0].Decimals = market.MaxDecimals + 1 },
	} {
		p := exampleParams()
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&p)
		if !errors.Is(p.Validate(), program.ErrParams) {
			t.Errorf("%s is taken", name)
		}
		if _, err := program.UnmarshalParams(p.Marshal()); err == nil {
			t.Errorf("%s reads back", name)
		}
	}
	if a, b := exampleParams(), exampleParams(); true {
		b.MinStake++
		if program.NetworkAddress(programID, a) == program.NetworkAddress(programID, b) {
			t.Error("two networks have one address")
		}
	}
}

// calls has one of each instruction, by its name in src/lib.rs.
func calls() map[string]program.Call {
	p, payout, owner, inventory := exampleParams(), key(40), key(41), hash(42)
	e := exampleEscrow()
	leaf := tranche.Leaf{Version: 1, Index: 2, Provider: key(50), Lease: market.LeaseID(hash(51)), Payout: key(52), Rate: 53, Cap: 54, Start: 55, End: 56}
	sums := tranche.Proof{{Hash: hash(57), Sum: 58}, {Hash: hash(59), Sum: 60}}
	proof := market.UnitProof{Index: 1, Units: 2, Path: merkle.Proof{hash(60)}}
	return map[string]program.Call{
		"INIT_NETWORK":  program.InitNetwork{Payer: key(30), Network: key(31), Params: p},
		"SET_AUTHORITY": program.SetAuthority{Authority: key(30), Network: key(31), New: key(32)},
		"INIT_POOL":     program.InitPool{Payer: key(30), Network: key(31), Mint: key(32), Pool: key(33), Index: 1},
		"OPEN_ESCROW": program.OpenEscrow{Payer: key(30), Buyer: key(31), Source: key(32), Authority: key(33), Escrow: key(34), Vault: key(35), Mint: key(36), Network: key(37),
			Order: e.Order, Opened: 38, Deadline: 39, Deposit: 40, Referrer: key(41), RefundOwner: key(42), MintIndex: 1, Keys: e.Keys, Standbys: e.Standbys},
		"ADD_TRANCHE": program.AddTranche{Payer: key(30), Buyer: key(31), Escrow: key(32), Vault: key(33), Tranche: key(34), Index: 258,
			Root: tranche.Root{Hash: hash(35), Sum: 36, Count: 37}},
		"ADD_STANDBY_TRANCHE": program.AddStandbyTranche{Payer: key(30), Escrow: key(31), Vault: key(32), Tranche: key(33), Signers: e.Keys.Keys[:2], Index: 258,
			Leaves: []program.StandbyLeaf{{Standby: 1, Lease: market.LeaseID(hash(34)), Rate: 35, Cap: 36, Start: 37, End: 38}}},
		"TOP_UP": program.TopUp{Escrow: key(30), Vault: key(31), Source: key(32), Authority: key(33), Mint: key(34), Amount: 35},
		"CLAIM":  program.Claim{Escrow: key(30), Tranche: key(31), Vault: key(32), Destination: key(33), Mint: key(34), Network: key(35), Ed: 1, Leaf: leaf, Proof: sums},
		"CLAIM signed": program.Claim{Escrow: key(30), Tranche: key(31), Vault: key(32), Destination: key(33), Mint: key(34), Network: key(35), Payee: leaf.Payout,
			Ed: 1, Leaf: leaf, Proof: sums},
		"RETIRE begin":    program.RetireBegin{Escrow: key(30), Tranche: key(31), Network: key(32), Signers: []sign.Key{key(33)}, Index: 258},
		"RETIRE finish":   program.RetireFinish{Escrow: key(30), Tranche: key(31), Leaf: leaf, Proof: sums},
		"RETIRE final":    program.RetireFinal{Escrow: key(30), Tranche: key(31), Network: key(32), Ed: 1, Leaf: leaf, Proof: sums},
		"REFUND":          program.Refund{Escrow: key(30), Vault: key(31), Destination: key(32), Mint: key(33), Network: key(34)},
		"SWEEP":           program.Sweep{Escrow: key(30), Vault: key(31), Mint: key(32), Network: key(33), Pool: key(34), Treasury: key(35)},
		"CLOSE_TRANCHE":   program.CloseTranche{Escrow: key(30), Tranche: key(31), RentPayer: key(32)},
		"CLOSE_ESCROW":    program.CloseEscrow{Escrow: key(30), Vault: key(31), Destination: key(32), Mint: key(33), RentPayer: key(34), Buyer: key(35)},
		"REGISTER":        program.Register{Payer: key(30), Owner: key(31), Peer: key(32), Network: key(33), Provider: key(34), Vault: key(35), Mint: key(36), Payout: payout, Inventory: inventory},
		"UPDATE":          program.Update{Signer: key(30), Provider: key(31), Payout: &payout, Inventory: &inventory, Owner: &owner},
		"STAKE":           program.Stake{Authority: key(30), Source: key(31), Provider: key(32), Vault: key(33), Mint: key(34), Amount: 5},
		"REQUEST_UNSTAKE": program.RequestUnstake{Owner: key(30), Network: key(31), Provider: key(32), Amount: 5},
		"WITHDRAW":        program.Withdraw{Owner: key(30), Provider: key(31), Vault: key(32), Destination: key(33), Mint: key(34)},
		"ATTEST":          program.Attest{Reporter: key(30), Network: key(31), Attested: key(32), Ed: 1},
		"CLOSE_ATTESTED":  program.CloseAttested{Reporter: key(30), Attested: key(31)},
		"SLASH": program.Slash{Network: key(30), Provider: key(31), Vault: key(32), Mint: key(33), A: key(34), B: key(35), VictimA: key(36), VictimB: key(37),
			Reporter: key(38), Unit: market.UnitID(hash(39)), InA: proof, InB: proof},
		"ANCHOR":          program.Anchor{Authority: key(30), Anchor: key(31), Root: hash(32), Count: 33},
		"PROVE":           program.Prove{Anchor: key(30), Receipt: hash(31), Index: 32, Path: merkle.Proof{hash(33), hash(34)}},
		"CLOSE_ANCHOR":    program.CloseAnchor{Authority: key(30), Anchor: key(31)},
		"INIT_EMISSION":   program.InitEmission{Payer: key(30), Network: key(31), Mint: key(32), Emission: key(33)},
		"BOND":            program.Bond{Owner: key(30), Network: key(31), Provider: key(32), Amount: 5},
		"RELEASE":         program.Release{Owner: key(30), Network: key(31), Provider: key(32), Amount: 5},
		"PROPOSE rules":   program.ProposeRules{Payer: key(30), Owner: key(31), Network: key(32), Provider: key(33), Ballot: key(34), Opened: 35, Rules: exampleRules()},
		"PROPOSE rewards": program.ProposeRewards{Payer: key(30), Signer: key(31), Network: key(32), Provider: key(33), Ballot: key(34), Opened: 35, Rewards: exampleRewards()},
		"VOTE":            program.CastVote{Payer: key(30), Signer: key(31), Provider: key(32), Ballot: key(33), Vote: key(34), For: true},
		"CLOSE_VOTE":      program.CloseVote{Vote: key(30), RentPayer: key(31)},
		"ENACT":           program.Enact{Network: key(30), Ballot: key(31)},
		"CLOSE_BALLOT":    program.CloseBallot{Ballot: key(30), RentPayer: key(31)},
		"ACCEPT":          program.Accept{Payer: key(30), Network: key(31), Ballot: key(32), Source: key(33), Mint: key(34), Payout: key(35), Vault: key(36)},
		"CLAIM_REWARD":    program.ClaimReward{Payout: key(30), Vault: key(31), Destination: key(32), Mint: key(33), Index: 34, Amount: 35, Path: merkle.Proof{hash(36), hash(37)}},
		"CLOSE_PAYOUT":    program.ClosePayout{Payout: key(30), Vault: key(31), Source: key(32), Mint: key(33), Network: key(34), RentPayer: key(35)},
		"STATE":           program.State{Reporter: key(30), Network: key(31), Stated: key(32), Ed: 1, What: program.StatementVerdict},
		"CLOSE_STATED":    program.CloseStated{Reporter: key(30), Stated: key(31)},
		"SLASH_AUDIT two": program.SlashAudit{Network: key(30), Provider: key(31), Vault: key(32), Mint: key(33), A: key(34), B: key(35), Reporter: key(36), Kind: audit.TwoAnswers},
		"SLASH_AUDIT opening": program.SlashAudit{Network: key(30), Provider: key(31), Vault: key(32), Mint: key(33), A: key(34), Reporter: key(36), Kind: audit.FalseOpening,
			Value: 1, Index: 2, Count: 3, Answer: audit.Answer{Target: audit.Target{Provider: key(37), Window: 4, Attempt: 1}}, Opened: challenge.Opening{Leaf: 5}, Path: merkle.Proof{hash(38)}},
		"DRAW_POOL": program.DrawPool{Authority: key(30), Network: key(31), Pool: key(32), Mint: key(33), Provider: key(34), Destination: key(35), Amount: 6},
	}
}

// TestVectors pins every layout and address in testdata/vectors.json. A change in it is a change of the protocol.
func TestVectors(t *testing.T) {
	t.Parallel()
	type meta struct {
		Key      sign.Key `json:"key"`
		Signer   bool     `json:"signer,omitempty"`
		Writable bool     `json:"writable,omitempty"`
	}
	type instruction struct {
		Call     program.Call `json:"call"`
		Accounts []meta       `json:"accounts"`
		Data     string       `json:"data"`
	}
	type account struct {
		Account any    `json:"account"`
		Bytes   string `json:"bytes"`
	}
	instructions, stored := map[string]instruction{}, map[string]account{}
	for name, call := range calls() {
		in := call.Instruction(programID)
		metas := make([]meta, len(in.Accounts))
		for i, m := range in.Accounts {
			metas[i] = meta(m)
		}
		instructions[strings.ReplaceAll(strings.ToLower(name), " ", "_")] = instruction{call, metas, hex.EncodeToString(in.Data)}
	}
	for _, a := range accounts {
		stored[a.name] = account{a.example, hex.EncodeToString(a.example.Marshal())}
	}
	p := exampleParams()
	signed := program.Signed{Keys: []sign.Key{key(1), key(2)}, Signatures: []sign.Signature{{3}, {4}}, Message: []byte("message")}
	compare(t, "vectors.json", map[string]any{
		"program": programID, "instructions": instructions, "accounts": stored,
		"params":     map[string]any{"params": p, "bytes": hex.EncodeToString(p.Marshal()), "hash": p.Hash()},
		"precompile": map[string]any{"keys": signed.Keys, "signatures": signed.Signatures, "message": hex.EncodeToString(signed.Message), "data": hex.EncodeToString(signed.Instruction().Data)},
		"addresses":  addresses(p),
	})
}

func addresses(p program.Params) map[string]any {
	return map[string]any{
		"network":  program.NetworkAddress(programID, p),
		"pool":     map[string]sign.Key{"network": key(1), "mint": key(2), "address": program.PoolAddress(programID, key(1), key(2))},
		"escrow":   map[string]any{"network": key(1), "buyer": key(2), "order": hash(3), "opened": 4, "address": program.EscrowAddress(programID, key(1), key(2), hash(3), 4)},
		"vault":    map[string]any{"escrow": key(1), "address": program.VaultAddress(programID, key(1))},
		"tranche":  map[string]any{"escrow": key(1), "index": 258, "address": program.TrancheAddress(programID, key(1), 258)},
		"provider": map[string]any{"network": key(1), "peer": key(2), "address": program.ProviderAddress(programID, key(1), key(2))},
		"stake":    map[string]any{"provider": key(1), "address": program.StakeAddress(programID, key(1))},
		"attested": map[string]any{"network": key(1), "reporter": key(2), "receipt": hash(3), "address": program.AttestedAddress(programID, key(1), key(2), hash(3))},
		"emission": map[string]any{"network": key(1), "address": program.EmissionAddress(programID, key(1))},
		"ballot":   map[string]any{"network": key(1), "provider": key(2), "opened": 3, "address": program.BallotAddress(programID, key(1), key(2), 3)},
		"vote": map[string]any{"topic": hash(1), "provider": key(2), "address": program.VoteAddress(programID, hash(1), key(2)),
			"topic_of_rewards": exampleBallot(program.SubjectRewards).Topic(key(1))},
		"payout":  map[string]any{"network": key(1), "source": 2, "epoch": 3, "address": program.PayoutAddress(programID, key(1), 2, 3)},
		"rewards": map[string]any{"payout": key(1), "address": program.RewardsAddress(programID, key(1))},
		"stated": map[string]any{"network": key(1), "reporter": key(2), "what": program.StatementShown, "signer": key(3), "statement": "04",
			"address": program.StatedAddress(programID, key(1), key(2), program.StatementShown, key(3), []byte{4})},
		"anchor": map[string]any{"authority": key(1), "root": hash(2), "address": program.AnchorAddress(programID, key(1), hash(2))},
	}
}

func compare(t *testing.T, name string, value any) {
	t.Helper()
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("layouts differ from %s; the program would not understand. If that is meant: go test -rewrite", path)
	}
}

// TestParseCall: a call about an escrow, an anchor or an audit is read back as it was made, one that its payee signs too; others are not.
func TestParseCall(t *testing.T) {
	t.Parallel()
	read := 0
	for name, call := range calls() {
		in := call.Instruction(programID)
		got, _, err := program.ParseCall(programID, in)
		if err != nil {
			if !errors.Is(err, program.ErrCall) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		read++
		if again := got.Instruction(programID); !reflect.DeepEqual(again, in) {
			t.Errorf("%s comes back as %+v", name, got)
		}
	}
	if read < 17 { // an anchor's address and an answer have to be real
		t.Errorf("%d calls are read", read)
	}
	more := calls()["CLAIM signed"].Instruction(programID)
	if got, _, err := program.ParseCall(programID, more); err != nil || got.(program.Claim).Payee.IsZero() {
		t.Errorf("a claim that its payee signs: %+v, %v", got, err)
	}
}
