package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

func (w *world) testReceipts(t *testing.T) {
	id, _ := w.greet(t)
	w.cli(t, "receipts", "ls", id).want(t, ExitOK, `^LEASE +RANK`, `^[0-9a-f]{8} +0 +\d+ +\w{8} +(direct|gossip) +settled +\d+`, `^\d+ receipts, owed 0.00\d+ STAR$`)
	w.cli(t, "receipts", "show", id).want(t, ExitOK, `^LEASE +RANK +SEQ`, `^[0-9a-f]{8} +1 +1 +\d+–\d+ +\d+ms`, ` final$`)
	w.cli(t, "receipts", "show", id, "--lease", "zz").want(t, ExitUsage, `no lease "zz"`)
	file := filepath.Join(t.TempDir(), "receipts.json")
	w.cli(t, "receipts", "export", id, file).want(t, ExitOK, `^wrote \d+ receipts of 2 leases to `)
	good := []string{`^[0-9a-f]{8} +0 .* ok$`, `^transaction +\w+ +slot \d+ +anchor matches$`, `^chain +checked$`, `^good +\d+ receipts of 2 leases, owed 0.00\d+ STAR$`}
	w.cli(t, "receipts", "verify", file).want(t, ExitOK, good...)
	w.cli(t, "receipts", "verify", id).want(t, ExitOK, good...)
	w.cli(t, "receipts", "verify", file, "--rpc", "here", "-o", "json").want(t, ExitOK, `"chain": "checked"`)
	w.cli(t, "receipts", "verify", file, "--offline").want(t, ExitOK, `^chain +not asked`, `anchor not checked`)
	w.cli(t, "receipts", "verify", file, "--rpc", "down").want(t, ExitPayment, `cannot be reached`, `^hint: give another endpoint`)
	// Somebody else, with nothing but the file.
	stranger := &world{home: t.TempDir()}
	stranger.cli(t, "receipts", "verify", file).want(t, ExitOK, `^chain +not asked: give --rpc$`)
	stranger.cli(t, "receipts", "verify", filepath.Join(t.TempDir(), "absent.json")).want(t, ExitUsage, `no such file`)

	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parseProof(b)
	if err != nil {
		t.Fatal(err)
	}
	testFlippedBits(t, b, p)
	w.testForgery(t, p)
}

// testFlippedBits flips one bit in many places of the file: either it is refused, or it says the same as before.
func testFlippedBits(t *testing.T, b []byte, p proof) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	caught := 0
	for range 5000 {
		bad := bytes.Clone(b)
		bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		q, err := parseProof(bad)
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
func (w *world) testForgery(t *testing.T, p proof) {
	t.Helper()
	first := func(q *proof) *proofLease { return &q.Leases[0] }
	receipt := func(q *proof) *verify.Receipt { return &first(q).Receipts[0] }
	for name, c := range map[string]struct {
		rule  verify.Rule
		forge func(q *proof)
	}{
		"a receipt's amount":            {verify.RuleAmount, func(q *proof) { receipt(q).Amount++ }},
		"a receipt's slots":             {verify.RuleFrom, func(q *proof) { receipt(q).From = 0 }},
		"a receipt's use of the CPU":    {verify.RuleProvider, func(q *proof) { receipt(q).CPUMillis++ }},
		"a provider's signature":        {verify.RuleProvider, func(q *proof) { receipt(q).ProviderSig[3] ^= 4 }},
		"a buyer's signature":           {verify.RuleBuyer, func(q *proof) { receipt(q).BuyerSig[3] ^= 4 }},
		"a receipt of another lease":    {verify.RuleLease, func(q *proof) { *receipt(q) = q.Leases[1].Receipts[0] }},
		"a receipt left out":            {ruleOwed, func(q *proof) { l := first(q); l.Receipts = l.Receipts[:len(l.Receipts)-1] }},
		"a lease's rate":                {ruleSigned, func(q *proof) { first(q).Lease.Core.Rate++ }},
		"a lease's payout":              {ruleSigned, func(q *proof) { first(q).Lease.Core.Payout = sign.Key{9} }},
		"a lease's signature":           {ruleSigned, func(q *proof) { first(q).Lease.BuyerSig[0] ^= 1 }},
		"the key set":                   {verify.RuleKeySet, func(q *proof) { first(q).Keys.Keys[0] = q.Leases[1].Lease.Core.Provider }},
		"a voucher's amount":            {verify.RuleSignature, func(q *proof) { first(q).Voucher.Cumulative++ }},
		"a voucher of another lease":    {verify.RuleLease, func(q *proof) { first(q).Voucher = q.Leases[1].Voucher }},
		"a voucher left out":            {ruleOwed, func(q *proof) { first(q).Voucher = nil }},
		"a lease twice":                 {ruleOrder, func(q *proof) { q.Leases = append(q.Leases, q.Leases[1]) }},
		"leases in another order":       {ruleOrder, func(q *proof) { q.Leases[0], q.Leases[1] = q.Leases[1], q.Leases[0] }},
		"the network":                   {ruleSigned, func(q *proof) { q.Genesis.Network = "other" }},
		"the genesis":                   {ruleGenesis, func(q *proof) { q.Genesis.SlotMillis = 0 }},
		"a lease left out":              {ruleAnchor, func(q *proof) { q.Leases = q.Leases[1:] }},
		"a transaction that is not":     {ruleUnlanded, func(q *proof) { q.Transactions = []chain.TxID{"nothing"} }},
		"all transactions left out":     {ruleAnchor, func(q *proof) { q.Transactions = nil }},
		"another job's good accounts":   {ruleAnchor, func(q *proof) { q.Leases = nil }},
		"an output that was not signed": {verify.RuleProvider, func(q *proof) { receipt(q).Output[0] ^= 1 }},
	} {
		q := clone(t, p)
		c.forge(&q)
		var err error
		if q.Digest, err = q.digest(); err != nil {
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
		w.cli(t, "receipts", "verify", file, "--rpc", "here").want(t, ExitFailed, `^starling: the receipts do not hold: rule `+string(c.rule)+` is broken`)
	}
}

func clone(t *testing.T, p proof) proof {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	q, err := parseProof(b)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestProofOfNothing(t *testing.T) {
	t.Parallel()
	p := proof{Format: proofFormat, Job: "j", Genesis: market.Genesis{Network: "test", Symbol: "STAR", SlotMillis: 400, IntervalSlots: 25, Simulated: true, Chain: sign.Hash{1}}}
	v, err := p.check()
	if err != nil || v.Owed != 0 || v.Receipts != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if _, ok := errors.AsType[*brokenRule](broken(ruleOwed, "", errors.New("x"))); !ok {
		t.Error("a broken rule has no type")
	}
}

// Whatever a receipt file holds, reading and checking it ends with an error or with a file that reads the same again.
func FuzzProof(f *testing.F) {
	empty, err := newProof(market.Genesis{Network: "test", Symbol: "STAR", SlotMillis: 400, IntervalSlots: 25, Simulated: true, Chain: sign.Hash{1}}, jobOf("j"), nil)
	if err != nil {
		f.Fatal(err)
	}
	b, err := json.Marshal(empty)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":"starling-receipts/1","leases":[{"lease":{},"keys":{"keys":null},"voucher":{},"receipts":[{}]}]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseProof(b)
		if err != nil {
			return
		}
		_, _ = p.check() // must not panic
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseProof(again); err != nil {
			t.Fatal(err)
		}
	})
}
