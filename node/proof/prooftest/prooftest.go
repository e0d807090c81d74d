// Package prooftest makes proofs for tests: one or more of every kind, that hold on one network.
package prooftest

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/deterministic"
	"github.com/starling-network/starling/verify/exclusive"
	"github.com/starling-network/starling/verify/replica"
)

// Window is the window of Frauds, Audit and Refusal.
const Window audit.Window = 7

// Genesis is the network of all proofs.
func Genesis() market.Genesis { return audittest.New(1).Genesis() }

// Key is the private key of a name.
func Key(name string) sign.Private { return sign.NewPrivate(sha256.Sum256([]byte(name))) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func signed(core verify.ReceiptCore, provider, buyer sign.Private) verify.Receipt {
	d := Genesis().Domain()
	p, err := core.Sign(d, provider)
	b, err2 := core.Sign(d, buyer)
	if err := errors.Join(err, err2); err != nil {
		panic(err)
	}
	return verify.Receipt{ReceiptCore: core, ProviderSig: p, BuyerSig: b}
}

// DoubleSale is one unit that a provider sold to two buyers, in slots 110 to 120. Proofs of other n are of other
// leases.
func DoubleSale(provider, a, b sign.Private, n int) proof.DoubleSale {
	units := []market.UnitID{{1}}
	var rs []verify.Receipt
	for i, buyer := range []sign.Private{a, b} {
		from := 100 + market.Slot(10*i)
		rs = append(rs, signed(verify.ReceiptCore{
			Version: verify.ReceiptVersion, Units: 1, Lease: market.LeaseID{byte(i + 1), byte(n), byte(n >> 8)}, Seq: 1,
			Provider: provider.Key(), Buyer: buyer.Key(), UnitsRoot: market.UnitsRoot(units), From: from, To: from + 20,
			Cumulative: 1_500_000,
		}, provider, buyer))
	}
	return proof.DoubleSale{Conflict: must(verify.NewConflict(Genesis().Domain(), rs[0], rs[1], units, units))}
}

// Frauds are a false opening and two answers by a provider, and a false pass by a member, of a window.
func Frauds(provider, member sign.Private, w audit.Window) (out []proof.Fraud) {
	for _, l := range audittest.Lies(Genesis().Domain(), provider, member, w) {
		out = append(out, proof.Fraud{Lie: l})
	}
	return out
}

// Dispute has a provider for each result, named "a", "b" and so on. Proofs of other n are of other works.
func Dispute(n int, results ...byte) proof.Dispute {
	d := replica.Dissent{Work: deterministic.Work{
		Seed: uint64(n) + 1, MemoryMiB: 64, DiskMiB: 16, Program: sign.Sum([]byte("program")),
		Outputs: []string{"/out"},
		Inputs:  []deterministic.Input{{Path: "/in/data", Content: sign.Sum([]byte("data"))}},
	}}
	for i, b := range results {
		by, r := Key(string(rune('a'+i))), deterministic.Result{Trees: []sign.Hash{{b}}}
		core := verify.ReceiptCore{
			Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, Seq: 1, From: 10, To: 20,
			Lease: market.LeaseID{byte(i + 1), byte(n), byte(n >> 8)}, Provider: by.Key(), Buyer: Key("buyer").Key(),
			Output: d.Work.Output(r),
		}
		d.Results = append(d.Results, replica.Signed{Receipt: signed(core, by, Key("buyer")), Result: r})
	}
	return proof.Dispute{Dissent: d}
}

// Audit is a unit that passed, with a committee of nine to draw from.
func Audit() proof.Audit { return proof.Audit{Record: must(audittest.New(9).Make())} }

// Refusal is a unit that one member did not pass.
func Refusal() proof.Refusal {
	c, refused := audittest.New(9), false
	c.Verdict = func(v *audit.Verdict) {
		if !refused {
			v.Outcome, refused = audit.Late, true
		}
	}
	r := must(c.Make())
	for _, v := range r.Verdicts {
		one := r
		if one.Verdicts = []audit.Signed{v}; v.Outcome != audit.Pass {
			return proof.Refusal{Refusal: must(audit.Refuse(one))}
		}
	}
	panic("nobody refused")
}

// History is one anchored lease of a provider.
func History() proof.History {
	provider, buyer := Key("provider"), Key("buyer")
	r := signed(verify.ReceiptCore{
		Version: verify.ReceiptVersion, Units: 1, Lease: market.LeaseID{9}, Prev: sign.Hash{9}, Seq: 1,
		Provider: provider.Key(),
		Buyer:    buyer.Key(), From: 400, To: 500, Amount: 1000, Cumulative: 1000,
	}, provider, buyer)
	hashes := []sign.Hash{{2}, r.SignedHash(), {3}}
	a := chain.Anchor{Of: chain.OfReceipts, Root: chain.RootOf(hashes), Count: 3}
	t := chain.Testimony{Receipt: r, In: chain.Include(a, hashes, 1, "tx", 510)}
	return proof.History{Peer: provider.Key(), Receipts: [][]byte{t.Marshal()}}
}

// Probes is one probe with signatures that hold, and openings that do not.
func Probes() proof.Probes {
	d, provider, buyer := Genesis().Domain(), Key("provider"), Key("buyer")
	core := market.LeaseCore{
		Version: market.LeaseVersion, Units: 1, Order: market.OrderID{1}, Buyer: buyer.Key(), Provider: provider.Key(),
		Payout: provider.Key(), Rate: 1_000_000, Cap: 9000, Start: 10, ActivateBefore: 20, End: 9010,
	}
	r := exclusive.Record{
		Lease: market.Lease{Core: core, ProviderSig: must(core.Sign(d, provider)), BuyerSig: must(core.Sign(d,
			buyer))},
		Elapsed: 25 * time.Millisecond, Trip: 5 * time.Millisecond, Known: 7e9,
	}
	r.Question = exclusive.Question{
		Lease: core.ID(), Execution: 1, Number: 1, Nonce: exclusive.Nonce{7}, Shape: exclusive.Fit(exclusive.CPU,
			0), At: 500,
	}
	r.QuestionSig = must(r.Question.Sign(d, buyer))
	r.AnswerSig = must(r.Answer().Sign(d, provider))
	r.OpenedSig = must(r.Opened().Sign(d, provider))
	r.MeasuredSig = must(r.Measured().Sign(d, buyer))
	return must(proof.NewProbes("j1", [][]byte{r.Marshal()}))
}

// Receipts is the cost of a job of two ranks, each with three receipts and a final voucher. Transaction "tx" anchors
// them.
func Receipts() proof.Receipts {
	leases := []proof.Lease{Lease(1, Key("second")), Lease(0, Key("provider"))}
	return proof.NewReceipts("j1", sign.Key{}, leases, []chain.TxID{"tx"})
}

// Lease is the lease of a rank at a provider: 30 slots in three receipts, at 1,000 base units a slot.
func Lease(rank uint32, provider sign.Private) proof.Lease {
	d, buyer := Genesis().Domain(), Key("buyer")
	set := must(market.NewKeySet(1, buyer.Key()))
	core := market.LeaseCore{
		Version: market.LeaseVersion, Units: 1, Rank: rank, Order: market.OrderID{1}, Buyer: buyer.Key(),
		Provider: provider.Key(), Payout: provider.Key(), Rate: 1000 * market.RateScale, Cap: 9_000_000, Start: 10,
		ActivateBefore: 20, End: 9010, VoucherKeys: set.Hash(),
		UnitsRoot: market.UnitsRoot([]market.UnitID{{byte(rank)}}),
	}
	l := proof.Lease{
		Keys:  set,
		Lease: market.Lease{Core: core, ProviderSig: must(core.Sign(d, provider)), BuyerSig: must(core.Sign(d, buyer))},
	}
	walk := verify.NewChain(core)
	for from := market.Slot(10); from < 40; from += 10 {
		next := must(walk.Next(from, from+10, func(r *verify.ReceiptCore) {
			if from == 30 {
				r.Flags |= verify.ReceiptFinal
			}
		}))
		walk = must(walk.Follow(next))
		l.Receipts = append(l.Receipts, signed(next, provider, buyer))
	}
	v := must(verify.SignVoucher(d, verify.Voucher{
		Version: verify.VoucherVersion, Flags: verify.VoucherFinal, Lease: core.ID(), Escrow: sign.Key{5}, Seq: 3,
		Cumulative: walk.Last().Cumulative, Horizon: 40,
	}, set, buyer))
	l.Voucher = &v
	return l
}

// All has a proof of every kind, in the order of proof.Kinds.
func All() []proof.Content {
	return []proof.Content{
		Receipts(), History(), Probes(), Audit(), Refusal(), DoubleSale(Key("provider"), Key("a"), Key("b"), 0),
		Frauds(Key("provider"), Key("member"), Window)[0], Dispute(0, 1, 2),
	}
}

// File writes the file of a proof and returns its path.
func File(t testing.TB, name string, g market.Genesis, c proof.Content) string {
	t.Helper()
	p, err := proof.New(c)
	if err != nil {
		t.Fatal(err)
	}
	f, err := proof.NewFile(g, p)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
