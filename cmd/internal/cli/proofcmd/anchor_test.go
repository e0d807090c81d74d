package proofcmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/prooftest"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// A record's file shows offline under which root it is, and with a chain at hand that the root is there.
func TestProofCheckAnchor(t *testing.T) {
	t.Parallel()
	dir, d, c := t.TempDir(), audittest.Domain(), audittest.New(9)
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	ledgers := chaintest.NewChain(chaintest.Config{})
	l := ledgers.Ledger(sign.Key{1})
	records := []sign.Hash{{1}, r.Hash(), {3}}
	a := chain.Anchor{Of: chain.OfRecords, Root: chain.RootOf(records), Count: 3}
	tx, err := l.SignMemo(t.Context(), a.Memo())
	if err == nil {
		err = l.Send(t.Context(), tx)
	}
	if err != nil {
		t.Fatal(err)
	}
	ledgers.Advance(chaintest.FinalBlocks + 2)
	_, slot, err := l.Memo(t.Context(), tx.ID)
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, in chain.Inclusion, args ...string) (int, string) {
		path := prooftest.File(t, name+".json", market.Genesis{
			Network: d.Network, Chain: d.Chain, Program: d.Program, Escrow: sign.Key{1}, Symbol: "STAR", Decimals: 6, SlotMillis: 400, IntervalSlots: 10,
			AuditSlots: c.Slots, AuditOneIn: 1, Simulated: true,
		}, proof.Audit{Record: r, Anchor: in.Marshal()})
		var out bytes.Buffer
		app := &cli.App{
			In: strings.NewReader(""), Out: &out, Err: &out, Getenv: func(string) string { return "" }, Commands: []func(*cli.App) *cobra.Command{NewProof},
			OpenChain: func(rpc []string, _ market.Genesis) (proof.Chain, error) {
				if rpc[0] == "down" {
					w := chaintest.NewChain(chaintest.Config{})
					w.SetDown(true)
					return w.Ledger(sign.Key{1}), nil
				}
				return l, nil
			},
		}
		code := app.Run(t.Context(), append([]string{"proof", "check", path, "--home", dir}, args...))
		return code, out.String()
	}
	good := chain.Include(a, records, 1, tx.ID, slot)
	later, elsewhere, receipts, other := good, good, good, good
	later.Slot++
	elsewhere.Tx = "nothing"
	receipts.Anchor.Of = chain.OfReceipts
	other.Index = 2
	for name, c := range map[string]struct {
		in   chain.Inclusion
		args []string
		code cli.ExitCode
		says string
	}{
		"offline":   {good, []string{"--offline"}, cli.ExitOK, "number 1 of 3 under root " + a.Root.String()},
		"no chain":  {good, nil, cli.ExitOK, "not asked: give --rpc"},
		"chain":     {good, []string{"--rpc", "here"}, cli.ExitOK, "checked: it has this root"},
		"down":      {good, []string{"--rpc", "down"}, cli.ExitPayment, "hint: give another endpoint"},
		"both":      {good, []string{"--rpc", "here", "--offline"}, cli.ExitUsage, "exclude each other"},
		"later":     {later, []string{"--rpc", "here"}, cli.ExitFailed, "the proof does not hold: rule anchor is broken by transaction " + string(tx.ID)},
		"elsewhere": {elsewhere, []string{"--rpc", "here"}, cli.ExitFailed, "the proof does not hold: rule landed is broken"},
		"receipts":  {receipts, []string{"--offline"}, cli.ExitFailed, "the proof does not hold: rule anchor is broken"},
		"other":     {other, []string{"--offline"}, cli.ExitFailed, "the proof does not hold: rule anchor is broken"},
	} {
		if code, out := check(name, c.in, c.args...); code != int(c.code) || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit %d, %q is not in:\n%s", name, code, c.says, out)
		}
	}
}
