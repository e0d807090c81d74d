package proofcmd_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/cmd/internal/cli/rooms"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/prooftest"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify"
)

// TestReceipts: the receipts of a job are listed, exported and checked, by a stranger too; changed and forged ones are refused.
func TestReceipts(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t, rooms.Commands, p2p.NAT{})
	id, _ := w.Greet(t)
	for range 3 { // what ends before a slot in which its units are free, by a busy provider's clock, costs nothing
		if !strings.Contains(w.CLI(t, "proof", "ls", id).Out, "owed 0.00 ") {
			break
		}
		id, _ = w.Greet(t)
	}
	w.CLI(t, "proof", "ls", id).Want(t, cli.ExitOK, `^LEASE +RANK`, `^[0-9a-f]{8} +0 +\d+ +\w{8} +(direct|gossip) +settled +\d+`, `^\d+ receipts, owed 0.00\d+ STAR$`)
	w.CLI(t, "proof", "show", id, "--receipts").Want(t, cli.ExitOK, `^LEASE +RANK +SEQ`, `^[0-9a-f]{8} +1 +1 +\d+–\d+ +\d+ms`, ` final$`)
	w.CLI(t, "proof", "show", id, "--lease", "zz").Want(t, cli.ExitUsage, `no lease "zz"`)
	why := w.CLI(t, "why", id).Out
	defer func() {
		if t.Failed() {
			t.Log(why)
		}
	}()
	file := filepath.Join(t.TempDir(), "receipts.json")
	w.CLI(t, "proof", "export", id, file).Want(t, cli.ExitOK, `^wrote the proof to .*: job \w+ has \d+ receipts of 2 leases$`)
	good := []string{`^[0-9a-f]{8} +0 .* ok$`, `^transaction +\w+ +slot \d+ +anchor matches$`, `^chain +checked: the program wrote down these receipts' root$`, `^owed +0.00\d+ STAR by \d+ receipts of 2 leases$`}
	w.CLI(t, "proof", "check", file).Want(t, cli.ExitOK, good...)
	w.CLI(t, "proof", "check", id).Want(t, cli.ExitOK, good...)
	w.CLI(t, "proof", "check", file, "--rpc", "here", "-o", "json").Want(t, cli.ExitOK, `"chain": "checked: the program wrote down these receipts' root"`)
	w.CLI(t, "proof", "check", file, "--offline").Want(t, cli.ExitOK, `^chain +not asked`, `anchor not checked`)
	w.CLI(t, "proof", "check", file, "--rpc", "down").Want(t, cli.ExitPayment, `cannot be reached`, `^hint: give another endpoint`)
	// Somebody else, with nothing but the file.
	stranger := clitest.NewHome(t.TempDir(), rooms.Commands)
	stranger.CLI(t, "proof", "check", file).Want(t, cli.ExitOK, `^chain +not asked: give --rpc$`)
	stranger.CLI(t, "proof", "check", filepath.Join(t.TempDir(), "absent.json")).Want(t, cli.ExitUsage, `no such file`)

	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := proof.ParseFile(b)
	if err != nil {
		t.Fatal(err)
	}
	testFlippedBits(t, b, f)
	testForgery(t, w, f)
}

// testFlippedBits flips one bit in many places of the file: either it is refused, or it says the same as before.
func testFlippedBits(t *testing.T, b []byte, f proof.File) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	caught := 0
	for range 5000 {
		bad := bytes.Clone(b)
		bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		q, err := proof.ParseFile(bad)
		if err != nil {
			caught++
			continue
		}
		x, err1 := json.Marshal(f)
		y, err2 := json.Marshal(q)
		if err1 != nil || err2 != nil || !bytes.Equal(x, y) {
			t.Fatalf("a changed file was read as\n%s", y)
		}
	}
	if caught < 2500 { // the rest hit white space or the case of a letter that means the same in both
		t.Errorf("%d of 5000 flipped bits were caught", caught)
	}
}

// forged is a file's network and its receipts.
type forged struct {
	proof.Receipts
	Genesis market.Genesis
}

// testForgery changes what the file says and makes its digest right again, as a liar would.
func testForgery(t *testing.T, w *clitest.World, f proof.File) {
	t.Helper()
	first := func(q *forged) *proof.Lease { return &q.Leases[0] }
	receipt := func(q *forged) *verify.Receipt { return &first(q).Receipts[0] }
	for name, c := range map[string]struct {
		rule  verify.Rule
		forge func(q *forged)
	}{
		"a receipt's amount":            {verify.RuleAmount, func(q *forged) { receipt(q).Amount++ }},
		"a receipt's slots":             {verify.RuleFrom, func(q *forged) { receipt(q).From = 0 }},
		"a receipt's use of the CPU":    {verify.RuleProvider, func(q *forged) { receipt(q).CPUMillis++ }},
		"a provider's signature":        {verify.RuleProvider, func(q *forged) { receipt(q).ProviderSig[3] ^= 4 }},
		"a buyer's signature":           {verify.RuleBuyer, func(q *forged) { receipt(q).BuyerSig[3] ^= 4 }},
		"a receipt of another lease":    {verify.RuleLease, func(q *forged) { *receipt(q) = q.Leases[1].Receipts[0] }},
		"a receipt left out":            {proof.RuleOwed, func(q *forged) { l := first(q); l.Receipts = l.Receipts[:len(l.Receipts)-1] }},
		"a lease's rate":                {proof.RuleSigned, func(q *forged) { first(q).Lease.Core.Rate++ }},
		"a lease's payout":              {proof.RuleSigned, func(q *forged) { first(q).Lease.Core.Payout = sign.Key{9} }},
		"a lease's signature":           {proof.RuleSigned, func(q *forged) { first(q).Lease.BuyerSig[0] ^= 1 }},
		"the key set":                   {verify.RuleKeySet, func(q *forged) { first(q).Keys.Keys[0] = q.Leases[1].Lease.Core.Provider }},
		"a voucher's amount":            {verify.RuleSignature, func(q *forged) { first(q).Voucher.Cumulative++ }},
		"a voucher of another lease":    {verify.RuleLease, func(q *forged) { first(q).Voucher = q.Leases[1].Voucher }},
		"a voucher left out":            {proof.RuleOwed, func(q *forged) { first(q).Voucher = nil }},
		"a lease twice":                 {proof.RuleOrder, func(q *forged) { q.Leases = append(q.Leases, q.Leases[1]) }},
		"leases in another order":       {proof.RuleOrder, func(q *forged) { q.Leases[0], q.Leases[1] = q.Leases[1], q.Leases[0] }},
		"the network":                   {proof.RuleSigned, func(q *forged) { q.Genesis.Network = "other" }},
		"the genesis":                   {proof.RuleGenesis, func(q *forged) { q.Genesis.SlotMillis = 0 }},
		"a lease left out":              {proof.RuleAnchor, func(q *forged) { q.Leases = q.Leases[1:] }},
		"another job's good accounts":   {proof.RuleAnchor, func(q *forged) { q.Leases = nil }},
		"an output that was not signed": {verify.RuleProvider, func(q *forged) { receipt(q).Output[0] ^= 1 }},
	} {
		p, err := f.Receipts() // another copy for each
		if err != nil {
			t.Fatal(err)
		}
		q := forged{p, f.Genesis}
		c.forge(&q)
		file := prooftest.File(t, "forged.json", q.Genesis, q.Receipts)
		t.Log(name)
		w.CLI(t, "proof", "check", file, "--rpc", "here").Want(t, cli.ExitFailed, `^starling: the proof does not hold: rule `+string(c.rule)+` is broken`)
	}
}
