package proofcmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

func TestAuditCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := audittest.Domain()
	write := func(name string, change func(f *audit.File)) string {
		c := audittest.New(9)
		r, err := c.Make()
		if err != nil {
			t.Fatal(err)
		}
		f := audit.NewFile(market.Genesis{
			Network: d.Network, Chain: d.Chain, Program: d.Program, Escrow: sign.Key{1}, Symbol: "STAR", Decimals: 6, SlotMillis: 400, IntervalSlots: 10,
			AuditSlots: c.Slots, AuditOneIn: 1, Simulated: true,
		}, audit.Kept{Record: r.Marshal()})
		change(&f)
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.json", func(*audit.File) {})
	code, out, errOut := clitest.Run(t, NewAudit, "audit", "check", good, "--home", dir)
	for _, want := range []string{"window 7, attempt 1", "beacon: the hash of slot 700", "2 × 64×128×128", "judged by", "instant  ", "the same for every unit", "pass: begun in slot 75", "56 entries, 4 walkers, 9 signatures", "not checked"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, %q is not in:\n%s%s", code, want, out, errOut)
		}
	}
	for name, c := range map[string]struct {
		change func(f *audit.File)
		says   string
	}{
		"network.json": {func(f *audit.File) { f.Genesis.Network = "other" }, "it shows nothing: rule provider is broken"},
		"windows.json": {func(f *audit.File) { f.Genesis.AuditSlots++ }, "it shows nothing: rule window is broken"},
		"seed.json":    {func(f *audit.File) { f.Record[16] ^= 1 }, "it shows nothing: rule seed is broken"},
		"time.json":    {func(f *audit.File) { f.Record[544+152] ^= 1 }, "it shows nothing: rule verdict is broken"},
		"short.json":   {func(f *audit.File) { f.Record = f.Record[:9] }, "it shows nothing: malformed"},
		"format.json":  {func(f *audit.File) { f.Format = "x" }, "not an audit file"},
	} {
		if code, _, errOut := clitest.Run(t, NewAudit, "audit", "check", write(name, c.change)); code != int(cli.ExitFailed) || !strings.Contains(errOut, c.says) {
			t.Errorf("%s: exit %d, %s", name, code, errOut)
		}
	}
	if code, _, errOut := clitest.Run(t, NewAudit, "audit", "check", filepath.Join(dir, "none.json")); code != int(cli.ExitUsage) {
		t.Errorf("exit %d, %s", code, errOut)
	}
}
