package cli

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/evidence"
	"github.com/starling-network/starling/verify"
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
	code, out, errOut := run(t, newEvidence, "evidence", "check", good, "--home", dir)
	for _, want := range []string{"sold one unit to two at a time", "slots 110 to 120, 4s", "1.50 STAR owed by then", "four signatures", "not checked", "compare it with the genesis"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, %q is not in:\n%s%s", code, want, out, errOut)
		}
	}
	for name, c := range map[string]struct {
		change func(p *evidence.Proof)
		code   ExitCode
		says   string
	}{
		"network.json":   {func(p *evidence.Proof) { p.Genesis.Network = "other" }, ExitFailed, "it proves nothing: rule provider-signature"},
		"signature.json": {func(p *evidence.Proof) { p.Conflict[384+256+64] ^= 1 }, ExitFailed, "it proves nothing: rule buyer-signature"},
		"unit.json":      {func(p *evidence.Proof) { p.Conflict[768] ^= 1 }, ExitFailed, "it proves nothing: rule units"},
		"short.json":     {func(p *evidence.Proof) { p.Conflict = p.Conflict[:9] }, ExitFailed, "it proves nothing: malformed"},
		"format.json":    {func(p *evidence.Proof) { p.Format = "x" }, ExitFailed, "not an evidence file"},
	} {
		if code, _, errOut := run(t, newEvidence, "evidence", "check", write(name, c.change)); code != int(c.code) || !strings.Contains(errOut, c.says) {
			t.Errorf("%s: exit %d, %s", name, code, errOut)
		}
	}
	if code, _, errOut := run(t, newEvidence, "evidence", "check", filepath.Join(dir, "none.json")); code != int(ExitUsage) {
		t.Errorf("no file: exit %d, %s", code, errOut)
	}
	if code, _, errOut := run(t, newEvidence, "evidence", "submit", good, "--home", dir); code != int(ExitUnreachable) {
		t.Errorf("without a network: exit %d, %s", code, errOut)
	}
	if code, _, errOut := run(t, newEvidence, "evidence", "ls", "--home", dir); code != int(ExitUnreachable) {
		t.Errorf("without a peer: exit %d, %s", code, errOut)
	}
}
