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

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/account/accounttest"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/tranche"
)

var rewrite = flag.Bool("rewrite", false, "write the test vectors instead of checking them")

var key, hash = accounttest.Key, accounttest.Hash

// marshaler is an account.
type marshaler = accounttest.Account

var programID = sign.NewPrivate(sign.Sum([]byte("program"))).Key()

func FuzzError(f *testing.F) {
	f.Add([]byte("Program " + programID.String() + " failed: custom program error: 0xd"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _, _ = program.Refusal(programID, []string{string(b)})
	})
}

func TestErrorsOfTransactions(t *testing.T) {
	t.Parallel()
	us, token := programID.String(), svm.TokenProgram.String()
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

// calls has one of each instruction, by its name in src/lib.rs.
func calls() map[string]program.Call {
	p, payout, owner, inventory := accounttest.Params(), key(40), key(41), hash(42)
	e := accounttest.Escrow()
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
		"PROPOSE rules":   program.ProposeRules{Payer: key(30), Owner: key(31), Network: key(32), Provider: key(33), Ballot: key(34), Opened: 35, Rules: accounttest.Rules()},
		"PROPOSE rewards": program.ProposeRewards{Payer: key(30), Signer: key(31), Network: key(32), Provider: key(33), Ballot: key(34), Opened: 35, Rewards: accounttest.Rewards()},
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
	type kept struct {
		Account any    `json:"account"`
		Bytes   string `json:"bytes"`
	}
	instructions, stored := map[string]instruction{}, map[string]kept{}
	for name, call := range calls() {
		in := call.Instruction(programID)
		metas := make([]meta, len(in.Accounts))
		for i, m := range in.Accounts {
			metas[i] = meta(m)
		}
		instructions[strings.ReplaceAll(strings.ToLower(name), " ", "_")] = instruction{call, metas, hex.EncodeToString(in.Data)}
	}
	for _, a := range append(accounttest.Examples(), evidence()...) {
		stored[a.Name] = kept{a.Of, hex.EncodeToString(a.Of.Marshal())}
	}
	p := accounttest.Params()
	signed := svm.Signed{Keys: []sign.Key{key(1), key(2)}, Signatures: []sign.Signature{{3}, {4}}, Message: []byte("message")}
	compare(t, "vectors.json", map[string]any{
		"program": programID, "instructions": instructions, "accounts": stored,
		"params":     map[string]any{"params": p, "bytes": hex.EncodeToString(p.Marshal()), "hash": p.Hash()},
		"precompile": map[string]any{"keys": signed.Keys, "signatures": signed.Signatures, "message": hex.EncodeToString(signed.Message), "data": hex.EncodeToString(signed.Instruction().Data)},
		"addresses":  addresses(p),
	})
}

func addresses(p account.Params) map[string]any {
	return map[string]any{
		"network":  account.NetworkAddress(programID, p),
		"pool":     map[string]sign.Key{"network": key(1), "mint": key(2), "address": account.PoolAddress(programID, key(1), key(2))},
		"escrow":   map[string]any{"network": key(1), "buyer": key(2), "order": hash(3), "opened": 4, "address": account.EscrowAddress(programID, key(1), key(2), hash(3), 4)},
		"vault":    map[string]any{"escrow": key(1), "address": account.VaultAddress(programID, key(1))},
		"tranche":  map[string]any{"escrow": key(1), "index": 258, "address": account.TrancheAddress(programID, key(1), 258)},
		"provider": map[string]any{"network": key(1), "peer": key(2), "address": account.ProviderAddress(programID, key(1), key(2))},
		"stake":    map[string]any{"provider": key(1), "address": account.StakeAddress(programID, key(1))},
		"attested": map[string]any{"network": key(1), "reporter": key(2), "receipt": hash(3), "address": program.AttestedAddress(programID, key(1), key(2), hash(3))},
		"emission": map[string]any{"network": key(1), "address": account.EmissionAddress(programID, key(1))},
		"ballot":   map[string]any{"network": key(1), "provider": key(2), "opened": 3, "address": account.BallotAddress(programID, key(1), key(2), 3)},
		"vote": map[string]any{"topic": hash(1), "provider": key(2), "address": account.VoteAddress(programID, hash(1), key(2)),
			"topic_of_rewards": accounttest.Ballot(account.SubjectRewards).Topic(key(1))},
		"payout":  map[string]any{"network": key(1), "source": 2, "epoch": 3, "address": account.PayoutAddress(programID, key(1), 2, 3)},
		"rewards": map[string]any{"payout": key(1), "address": account.RewardsAddress(programID, key(1))},
		"stated": map[string]any{"network": key(1), "reporter": key(2), "what": program.StatementShown, "signer": key(3), "statement": "04",
			"address": program.StatedAddress(programID, key(1), key(2), program.StatementShown, key(3), []byte{4})},
		"anchor": map[string]any{"authority": key(1), "root": hash(2), "address": account.AnchorAddress(programID, key(1), hash(2))},
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
