package rooms

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify"
)

func (w *world) testReceipts(t *testing.T) {
	id, _ := w.greet(t)
	for range 3 { // what ends before a slot in which its units are free, by a busy provider's clock, costs nothing
		if !strings.Contains(w.cli(t, "receipts", "ls", id).Out, "owed 0.00 ") {
			break
		}
		id, _ = w.greet(t)
	}
	w.cli(t, "receipts", "ls", id).Want(t, cli.ExitOK, `^LEASE +RANK`, `^[0-9a-f]{8} +0 +\d+ +\w{8} +(direct|gossip) +settled +\d+`, `^\d+ receipts, owed 0.00\d+ STAR$`)
	w.cli(t, "receipts", "show", id).Want(t, cli.ExitOK, `^LEASE +RANK +SEQ`, `^[0-9a-f]{8} +1 +1 +\d+–\d+ +\d+ms`, ` final$`)
	w.cli(t, "receipts", "show", id, "--lease", "zz").Want(t, cli.ExitUsage, `no lease "zz"`)
	why := w.cli(t, "why", id).Out
	defer func() {
		if t.Failed() {
			t.Log(why)
		}
	}()
	file := filepath.Join(t.TempDir(), "receipts.json")
	w.cli(t, "receipts", "export", id, file).Want(t, cli.ExitOK, `^wrote \d+ receipts of 2 leases to `)
	good := []string{`^[0-9a-f]{8} +0 .* ok$`, `^transaction +\w+ +slot \d+ +anchor matches$`, `^chain +checked: the program wrote down these receipts' root$`, `^good +\d+ receipts of 2 leases, owed 0.00\d+ STAR$`}
	w.cli(t, "receipts", "verify", file).Want(t, cli.ExitOK, good...)
	w.cli(t, "receipts", "verify", id).Want(t, cli.ExitOK, good...)
	w.cli(t, "receipts", "verify", file, "--rpc", "here", "-o", "json").Want(t, cli.ExitOK, `"chain": "checked: the program wrote down these receipts' root"`)
	w.cli(t, "receipts", "verify", file, "--offline").Want(t, cli.ExitOK, `^chain +not asked`, `anchor not checked`)
	w.cli(t, "receipts", "verify", file, "--rpc", "down").Want(t, cli.ExitPayment, `cannot be reached`, `^hint: give another endpoint`)
	// Somebody else, with nothing but the file.
	stranger := &world{home: t.TempDir()}
	stranger.cli(t, "receipts", "verify", file).Want(t, cli.ExitOK, `^chain +not asked: give --rpc$`)
	stranger.cli(t, "receipts", "verify", filepath.Join(t.TempDir(), "absent.json")).Want(t, cli.ExitUsage, `no such file`)

	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proof.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	testFlippedBits(t, b, p)
	w.testForgery(t, p)
}

// testFlippedBits flips one bit in many places of the file: either it is refused, or it says the same as before.
func testFlippedBits(t *testing.T, b []byte, p proof.Proof) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	caught := 0
	for range 5000 {
		bad := bytes.Clone(b)
		bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		q, err := proof.Parse(bad)
		if err != nil {
			caught++
			continue
		}
		x, err1 := json.Marshal(p)
		y, err2 := json.Marshal(q)
		if err1 != nil || err2 != nil || !bytes.Equal(x, y) {
			t.Fatalf("a changed file was read as\n%s", y)
		}
	}
	if caught < 2500 { // the rest hit white space or the case of a letter that means the same in both
		t.Errorf("%d of 5000 flipped bits were caught", caught)
	}
}

// testForgery changes what the file says and makes its digest right again, as a liar would.
func (w *world) testForgery(t *testing.T, p proof.Proof) {
	t.Helper()
	first := func(q *proof.Proof) *proof.Lease { return &q.Leases[0] }
	receipt := func(q *proof.Proof) *verify.Receipt { return &first(q).Receipts[0] }
	for name, c := range map[string]struct {
		rule  verify.Rule
		forge func(q *proof.Proof)
	}{
		"a receipt's amount":            {verify.RuleAmount, func(q *proof.Proof) { receipt(q).Amount++ }},
		"a receipt's slots":             {verify.RuleFrom, func(q *proof.Proof) { receipt(q).From = 0 }},
		"a receipt's use of the CPU":    {verify.RuleProvider, func(q *proof.Proof) { receipt(q).CPUMillis++ }},
		"a provider's signature":        {verify.RuleProvider, func(q *proof.Proof) { receipt(q).ProviderSig[3] ^= 4 }},
		"a buyer's signature":           {verify.RuleBuyer, func(q *proof.Proof) { receipt(q).BuyerSig[3] ^= 4 }},
		"a receipt of another lease":    {verify.RuleLease, func(q *proof.Proof) { *receipt(q) = q.Leases[1].Receipts[0] }},
		"a receipt left out":            {proof.RuleOwed, func(q *proof.Proof) { l := first(q); l.Receipts = l.Receipts[:len(l.Receipts)-1] }},
		"a lease's rate":                {proof.RuleSigned, func(q *proof.Proof) { first(q).Lease.Core.Rate++ }},
		"a lease's payout":              {proof.RuleSigned, func(q *proof.Proof) { first(q).Lease.Core.Payout = sign.Key{9} }},
		"a lease's signature":           {proof.RuleSigned, func(q *proof.Proof) { first(q).Lease.BuyerSig[0] ^= 1 }},
		"the key set":                   {verify.RuleKeySet, func(q *proof.Proof) { first(q).Keys.Keys[0] = q.Leases[1].Lease.Core.Provider }},
		"a voucher's amount":            {verify.RuleSignature, func(q *proof.Proof) { first(q).Voucher.Cumulative++ }},
		"a voucher of another lease":    {verify.RuleLease, func(q *proof.Proof) { first(q).Voucher = q.Leases[1].Voucher }},
		"a voucher left out":            {proof.RuleOwed, func(q *proof.Proof) { first(q).Voucher = nil }},
		"a lease twice":                 {proof.RuleOrder, func(q *proof.Proof) { q.Leases = append(q.Leases, q.Leases[1]) }},
		"leases in another order":       {proof.RuleOrder, func(q *proof.Proof) { q.Leases[0], q.Leases[1] = q.Leases[1], q.Leases[0] }},
		"the network":                   {proof.RuleSigned, func(q *proof.Proof) { q.Genesis.Network = "other" }},
		"the genesis":                   {proof.RuleGenesis, func(q *proof.Proof) { q.Genesis.SlotMillis = 0 }},
		"a lease left out":              {proof.RuleAnchor, func(q *proof.Proof) { q.Leases = q.Leases[1:] }},
		"another job's good accounts":   {proof.RuleAnchor, func(q *proof.Proof) { q.Leases = nil }},
		"an output that was not signed": {verify.RuleProvider, func(q *proof.Proof) { receipt(q).Output[0] ^= 1 }},
	} {
		q := clone(t, p)
		c.forge(&q)
		var err error
		if q.Digest, err = q.Hash(); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "forged.json")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Log(name)
		w.cli(t, "receipts", "verify", file, "--rpc", "here").Want(t, cli.ExitFailed, `^starling: the receipts do not hold: rule `+string(c.rule)+` is broken`)
	}
}

func clone(t *testing.T, p proof.Proof) proof.Proof {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	q, err := proof.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return q
}
