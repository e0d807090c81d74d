package proofcmd

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/evidence"
	"github.com/starling-network/starling/verify"
	lietest "github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/replica"
)

// doubleSale is an evidence file's content: one unit sold to two buyers, slots 110 to 120.
func doubleSale(t *testing.T) evidence.Proof {
	t.Helper()
	g := market.Genesis{Network: "test", Chain: sign.Sum([]byte("chain")), Symbol: "STAR", Decimals: 6, SlotMillis: 400, IntervalSlots: 10, Simulated: true}
	private := func(name string) sign.Private { return sign.NewPrivate(sha256.Sum256([]byte(name))) }
	units, seller := []market.UnitID{{1}}, private("seller")
	var rs []verify.Receipt
	for i, name := range []string{"a", "b"} {
		core := verify.ReceiptCore{
			Version: verify.ReceiptVersion, Units: 1, Lease: market.LeaseID{byte(i + 1)}, Seq: 1, Provider: seller.Key(), Buyer: private(name).Key(),
			UnitsRoot: market.UnitsRoot(units), From: 100 + market.Slot(10*i), To: 120 + market.Slot(10*i), Cumulative: 1_500_000,
		}
		p, err := core.Sign(g.Domain(), seller)
		b, err2 := core.Sign(g.Domain(), private(name))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		rs = append(rs, verify.Receipt{ReceiptCore: core, ProviderSig: p, BuyerSig: b})
	}
	c, err := verify.NewConflict(g.Domain(), rs[0], rs[1], units, units)
	if err != nil {
		t.Fatal(err)
	}
	return evidence.NewProof(g, c.Marshal())
}

func TestEvidenceCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, change func(p *evidence.Proof)) string {
		p := doubleSale(t)
		change(&p)
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.json", func(*evidence.Proof) {})
	code, out, errOut := clitest.Run(t, NewEvidence, "evidence", "check", good, "--home", dir)
	for _, want := range []string{"sold one unit to two at a time", "slots 110 to 120, 4s", "1.50 STAR owed by then", "four signatures", "not checked", "compare it with the genesis"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, %q is not in:\n%s%s", code, want, out, errOut)
		}
	}
	for name, c := range map[string]struct {
		change func(p *evidence.Proof)
		code   cli.ExitCode
		says   string
	}{
		"network.json":   {func(p *evidence.Proof) { p.Genesis.Network = "other" }, cli.ExitFailed, "it proves nothing: rule provider-signature"},
		"signature.json": {func(p *evidence.Proof) { p.Conflict[384+256+64] ^= 1 }, cli.ExitFailed, "it proves nothing: rule buyer-signature"},
		"unit.json":      {func(p *evidence.Proof) { p.Conflict[768] ^= 1 }, cli.ExitFailed, "it proves nothing: rule units"},
		"short.json":     {func(p *evidence.Proof) { p.Conflict = p.Conflict[:9] }, cli.ExitFailed, "it proves nothing: malformed"},
		"format.json":    {func(p *evidence.Proof) { p.Format = "x" }, cli.ExitFailed, "not an evidence file"},
	} {
		if code, _, errOut := clitest.Run(t, NewEvidence, "evidence", "check", write(name, c.change)); code != int(c.code) || !strings.Contains(errOut, c.says) {
			t.Errorf("%s: exit %d, %s", name, code, errOut)
		}
	}
	if code, _, errOut := clitest.Run(t, NewEvidence, "evidence", "check", filepath.Join(dir, "none.json")); code != int(cli.ExitUsage) {
		t.Errorf("no file: exit %d, %s", code, errOut)
	}
	if code, _, errOut := clitest.Run(t, NewEvidence, "evidence", "submit", good, "--home", dir); code != int(cli.ExitUnreachable) {
		t.Errorf("without a network: exit %d, %s", code, errOut)
	}
	if code, _, errOut := clitest.Run(t, NewEvidence, "evidence", "ls", "--home", dir); code != int(cli.ExitUnreachable) {
		t.Errorf("without a peer: exit %d, %s", code, errOut)
	}
}

// evidence check repeats the proof of a lie offline, and says what is wrong with one that is none.
func TestEvidenceCheckLie(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := doubleSale(t).Genesis
	g.AuditSlots, g.AuditOneIn = 20, 1
	liar, member := sign.NewPrivate(sha256.Sum256([]byte("liar"))), sign.NewPrivate(sha256.Sum256([]byte("member")))
	lies := lietest.Lies(g.Domain(), liar, member, 7)
	write := func(name string, p evidence.Proof) string {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	right := lies[0]
	right.Opening.Values[right.Value] ^= 1
	other := evidence.NewLieProof(g, lies[0].Marshal())
	other.Genesis.Network = "another"
	for name, c := range map[string]struct {
		args []string
		out  string // what it says
		bad  string // with what it fails
	}{
		"false opening":   {args: []string{"check", write("opening.json", evidence.NewLieProof(g, lies[0].Marshal()))}, out: "false opening by " + liar.Key().String()},
		"two answers":     {args: []string{"check", write("two.json", evidence.NewLieProof(g, lies[1].Marshal()))}, out: "two answers to attempt 1"},
		"false pass":      {args: []string{"check", write("pass.json", evidence.NewLieProof(g, lies[2].Marshal()))}, out: "false pass by " + member.Key().String()},
		"slots":           {args: []string{"check", "-o", "json", filepath.Join(dir, "opening.json")}, out: `"to": 160`},
		"another opening": {args: []string{"check", write("right.json", evidence.NewLieProof(g, right.Marshal()))}, bad: "it proves nothing: rule openings is broken"},
		"another network": {args: []string{"check", write("other.json", other)}, bad: "it proves nothing: rule provider is broken"},
		"cut off":         {args: []string{"check", write("short.json", evidence.NewLieProof(g, lies[0].Marshal()[:200]))}, bad: "it proves nothing"},
		"nothing to run":  {args: []string{"check", filepath.Join(dir, "opening.json"), "--program", dir}, bad: "nothing to run again"},
		"no network":      {args: []string{"submit", filepath.Join(dir, "opening.json"), "--home", dir}, bad: "genesis"},
	} {
		code, out, errs := clitest.Run(t, NewEvidence, append([]string{"evidence"}, c.args...)...)
		if (code == 0) != (c.bad == "") || !strings.Contains(out, c.out) || !strings.Contains(errs, c.bad) {
			t.Errorf("%s: exit code %d\n%s%s", name, code, out, errs)
		}
	}
}

// falseResult is an evidence file's content: three providers, one of whom signed another result than the others.
func falseResult(t *testing.T, results ...byte) evidence.Proof {
	t.Helper()
	p := doubleSale(t)
	private := func(name string) sign.Private { return sign.NewPrivate(sha256.Sum256([]byte(name))) }
	d := replica.Dissent{Work: replica.Work{Seed: 1, MemoryMiB: 64, DiskMiB: 16, Program: sign.Sum([]byte("program")), Outputs: []string{"/out"},
		Inputs: []replica.Input{{Path: "/in/data", Content: sign.Sum([]byte("data"))}}}}
	for i, b := range results {
		by, r := private(string(rune('a'+i))), replica.Result{Trees: []sign.Hash{{b}}}
		core := verify.ReceiptCore{
			Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, Lease: market.LeaseID{byte(i + 1)}, Seq: 1, Provider: by.Key(), Buyer: private("buyer").Key(),
			From: 10, To: 20, Output: replica.Output(d.Work.Hash(), r),
		}
		s := replica.Signed{Receipt: verify.Receipt{ReceiptCore: core}, Result: r}
		var err, err2 error
		s.Receipt.ProviderSig, err = core.Sign(p.Genesis.Domain(), by)
		s.Receipt.BuyerSig, err2 = core.Sign(p.Genesis.Domain(), private("buyer"))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		d.Results = append(d.Results, s)
	}
	return evidence.NewDissentProof(p.Genesis, d.Marshal())
}

// evidence check says of differing results who signed what, and refuses what proves nothing and files that are not those of the work.
func TestEvidenceCheckDissent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, p evidence.Proof) string {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	liar := sign.NewPrivate(sha256.Sum256([]byte("a"))).Key().String()
	three, two, same := write("three.json", falseResult(t, 9, 1, 1)), write("two.json", falseResult(t, 9, 1)), write("same.json", falseResult(t, 1, 1))
	both := falseResult(t, 9, 1)
	both.Conflict = doubleSale(t).Conflict
	other := falseResult(t, 9, 1, 1)
	other.Genesis.Network = "another"
	for name, c := range map[string]struct {
		args []string
		out  string // what it says
		bad  string // with what it fails
	}{
		"majority":        {args: []string{three}, out: "differs from " + liar},
		"two":             {args: []string{two}, out: "none"},
		"json":            {args: []string{"-o", "json", three}, out: `"wrong": [`},
		"the same":        {args: []string{same}, bad: "rule dissent is broken"},
		"both kinds":      {args: []string{write("both.json", both)}, bad: "one proof"},
		"another network": {args: []string{write("other.json", other)}, bad: "rule provider-signature is broken"},
		"inputs alone":    {args: []string{three, "--input", "/in/data=x"}, bad: "needs --program"},
		"no pair":         {args: []string{three, "--program", three, "--input", "x"}, bad: "want PATH=FILE"},
		"another program": {args: []string{three, "--program", three, "--input", "/in/data=" + three}, bad: "has SHA-256"},
		"nothing to run":  {args: []string{write("double.json", doubleSale(t)), "--program", three}, bad: "nothing to run again"},
		"submit":          {args: []string{"submit", three}, bad: "no stake is taken for results that differ"},
	} {
		args := append([]string{"evidence"}, c.args...)
		if c.args[0] != "submit" {
			args = append([]string{"evidence", "check"}, c.args...)
		}
		code, out, errs := clitest.Run(t, NewEvidence, args...)
		if (code == 0) != (c.bad == "") || !strings.Contains(out, c.out) || !strings.Contains(errs, c.bad) {
			t.Errorf("%s: exit code %d\n%s%s", name, code, out, errs)
		}
	}
}
