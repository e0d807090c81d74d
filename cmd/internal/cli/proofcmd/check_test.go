package proofcmd

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/proof/prooftest"
)

// proof check says what a proof of each kind proves, and what is wrong with one that proves nothing.
func TestProofCheck(t *testing.T) {
	t.Parallel()
	dir, g, other := t.TempDir(), prooftest.Genesis(), prooftest.Genesis()
	other.Network = "other"
	key := func(name string) string { return prooftest.Key(name).Key().String() }
	sale := prooftest.DoubleSale(prooftest.Key("p"), prooftest.Key("a"), prooftest.Key("b"), 0)
	frauds := prooftest.Frauds(prooftest.Key("liar"), prooftest.Key("lazy"), 7)
	right, unsigned, same := frauds[0], sale, prooftest.Dispute(0, 1, 1)
	right.Opening.Values[right.Value] ^= 1
	unsigned.A.BuyerSig[0] ^= 1
	windows := g
	windows.AuditSlots++
	double, dispute := prooftest.File(t, "double.json", g, sale), prooftest.File(t, "three.json", g, prooftest.Dispute(0, 9, 1, 1))
	audited := prooftest.File(t, "audit.json", g, prooftest.Audit())
	for name, c := range map[string]struct {
		args []string
		out  string // what it says
		bad  string // with what it fails
	}{
		"double sale":     {args: []string{double}, out: "sold one unit to two at a time"},
		"its slots":       {args: []string{double}, out: "slots 110 to 120, 4s"},
		"its network":     {args: []string{double}, out: "compare it with the genesis"},
		"json":            {args: []string{"-o", "json", double}, out: `"kind": "double-sale"`},
		"false opening":   {args: []string{prooftest.File(t, "opening.json", g, frauds[0])}, out: key("liar") + "  false opening"},
		"two answers":     {args: []string{prooftest.File(t, "two.json", g, frauds[1])}, out: "two answers to attempt 1"},
		"false pass":      {args: []string{prooftest.File(t, "pass.json", g, frauds[2])}, out: key("lazy") + "  false pass"},
		"majority":        {args: []string{dispute}, out: "differs from " + key("a")},
		"wrong":           {args: []string{"-o", "json", dispute}, out: `"wrong": [`},
		"no majority":     {args: []string{prooftest.File(t, "two.json", g, prooftest.Dispute(0, 9, 1))}, out: "none"},
		"audit":           {args: []string{audited}, out: "56 entries, 4 walkers, 9 signatures"},
		"its committee":   {args: []string{audited}, out: "pass: begun in slot 75"},
		"refusal":         {args: []string{prooftest.File(t, "refusal.json", g, prooftest.Refusal())}, out: "refused by"},
		"history":         {args: []string{prooftest.File(t, "history.json", g, prooftest.History()), "--offline"}, out: "not asked: --offline"},
		"receipts":        {args: []string{prooftest.File(t, "receipts.json", g, prooftest.Receipts())}, out: "not asked: give --rpc"},
		"wrong probes":    {args: []string{prooftest.File(t, "probes.json", g, prooftest.Probes())}, out: "WRONG:", bad: "not every probe has a right answer"},
		"no signature":    {args: []string{prooftest.File(t, "unsigned.json", g, unsigned)}, bad: "the proof does not hold: rule buyer-signature is broken"},
		"another network": {args: []string{prooftest.File(t, "other.json", other, sale)}, bad: "rule provider-signature is broken"},
		"another opening": {args: []string{prooftest.File(t, "right.json", g, right)}, bad: "rule openings is broken"},
		"the same":        {args: []string{prooftest.File(t, "same.json", g, same)}, bad: "rule dissent is broken"},
		"other windows":   {args: []string{prooftest.File(t, "windows.json", windows, prooftest.Audit())}, bad: "rule window is broken"},
		"no file":         {args: []string{filepath.Join(dir, "none.json")}, bad: "no such file"},
		"no proof":        {args: []string{"check_test.go"}, bad: "not a proof file"},
		"inputs alone":    {args: []string{dispute, "--input", "/in/data=x"}, bad: "needs --program"},
		"no pair":         {args: []string{dispute, "--program", dispute, "--input", "x"}, bad: "want PATH=FILE"},
		"another program": {args: []string{dispute, "--program", dispute, "--input", "/in/data=" + dispute}, bad: "has SHA-256"},
		"nothing to run":  {args: []string{double, "--program", dispute}, bad: "no work to run again"},
		"both":            {args: []string{double, "--offline", "--rpc", "x"}, bad: "exclude each other"},
		"a kind":          {args: []string{double, "--kind", "rumour"}, bad: "want one of"},
		"kept elsewhere":  {args: []string{"4f0c21aa"}, bad: "hint"},
	} {
		code, out, errs := clitest.Run(t, NewProof, append([]string{"proof", "check", "--home", dir}, c.args...)...)
		if (code == 0) != (c.bad == "") || !strings.Contains(out, c.out) || !strings.Contains(errs, c.bad) {
			t.Errorf("%s: exit code %d\n%s%s", name, code, out, errs)
		}
	}
}

// proof submit takes files of offences alone, and says so before it reaches for a chain.
func TestProofSubmit(t *testing.T) {
	t.Parallel()
	dir, g := t.TempDir(), prooftest.Genesis()
	for name, c := range map[string]struct {
		file string
		code cli.ExitCode
		says string
	}{
		"dispute":    {prooftest.File(t, "d.json", g, prooftest.Dispute(0, 1, 2)), cli.ExitUsage, "no stake is slashed for a dispute"},
		"audit":      {prooftest.File(t, "a.json", g, prooftest.Audit()), cli.ExitUsage, "no stake is slashed for an audit"},
		"forged":     {prooftest.File(t, "f.json", g, prooftest.Dispute(0, 1, 1)), cli.ExitUsage, "no stake"},
		"no network": {prooftest.File(t, "s.json", g, prooftest.DoubleSale(prooftest.Key("p"), prooftest.Key("a"), prooftest.Key("b"), 0)), cli.ExitUnreachable, "genesis"},
		"no file":    {"nothing", cli.ExitUsage, "no such file"},
	} {
		if code, out, errs := clitest.Run(t, NewProof, "proof", "submit", c.file, "--home", dir); code != int(c.code) || !strings.Contains(errs, c.says) {
			t.Errorf("%s: exit %d\n%s%s", name, code, out, errs)
		}
	}
	for _, args := range [][]string{{"ls"}, {"ls", "j1"}, {"show", "4f0c"}, {"export", "j1", "x"}, {"watch"}, {"audit"}} {
		if code, _, errs := clitest.Run(t, NewProof, append([]string{"proof", "--home", dir}, args...)...); code != int(cli.ExitUnreachable) {
			t.Errorf("%v without a peer: exit %d, %s", args, code, errs)
		}
	}
	if code, out, _ := clitest.Run(t, NewProof, "proof", "floors"); code != 0 || !strings.Contains(out, "TOPS") {
		t.Errorf("floors: exit %d, %s", code, out)
	}
}
