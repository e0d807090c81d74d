package chain_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

func TestAnchorText(t *testing.T) {
	t.Parallel()
	a := chain.Anchor{Root: sign.Hash{0xab}, Count: 1250, Ref: chain.Ref{1, 2}}
	want := "starling:anchor:1:ab" + strings.Repeat("0", 62) + ":1250:0102000000000000"
	if got := string(a.Memo()); got != want {
		t.Errorf("memo %q, want %q", got, want)
	}
	for name, bad := range map[string]string{
		"empty":         "",
		"other":         "hello",
		"version":       strings.Replace(want, ":1:", ":2:", 1),
		"upper case":    strings.Replace(want, "ab0", "AB0", 1),
		"leading zero":  strings.Replace(want, ":1250:", ":01250:", 1),
		"plus":          strings.Replace(want, ":1250:", ":+1250:", 1),
		"too many":      strings.Replace(want, ":1250:", ":18446744073709551616:", 1),
		"short root":    strings.Replace(want, "ab0", "ab", 1),
		"trailing":      want + " ",
		"one more part": want + ":0",
		"long":          want + strings.Repeat("0", 200),
	} {
		if _, err := chain.ParseAnchor([]byte(bad)); !errors.Is(err, chain.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzAnchor(f *testing.F) {
	f.Add(chain.Anchor{}.Memo())
	f.Add(chain.Anchor{Root: sign.Hash{1}, Count: 1<<64 - 1, Ref: chain.Ref{9}}.Memo())
	f.Add(chain.Anchor{Of: chain.OfRecords, Root: sign.Hash{1}, Count: 3, Ref: chain.Ref{9}}.Memo())
	f.Add([]byte("starling:anchor:1:::"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := chain.ParseAnchor(b)
		if err == nil && !bytes.Equal(a.Memo(), b) {
			t.Fatalf("%q comes back as %q", b, a.Memo())
		}
	})
}

// someState is a settlement with a batch in every state.
func someState(t interface{ Fatal(...any) }) chain.Settlement {
	s := chain.New(root(9), params())
	do := func(ev chain.Event) {
		next, _, err := s.Step(time.Unix(1, 0), ev)
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	var owed []chain.Owed
	for i := range 6 {
		owed = append(owed, chain.Owed{Lease: lease(i), To: key(i), Cumulative: market.Amount(100 + i)})
	}
	do(chain.AmountsOwed{Owed: owed, Root: root(1), Receipts: 12})
	for i := range uint32(5) {
		do(chain.PaymentPrepared{Batch: i + 1, Tx: chain.Prepared{ID: chain.TxID('a' + rune(i)), Raw: []byte{1, 2, byte(i)}, LastValid: 9, Since: 3, Count: 1}})
	}
	do(chain.PaymentSent{Batch: 2})
	do(chain.SendFailed{Batch: 1, Reason: "no route"})
	do(chain.StatusSeen{Batch: 3, Status: chain.TxStatus{State: chain.Confirmed, Slot: 8}})
	do(chain.StatusSeen{Batch: 4, Status: chain.TxStatus{State: chain.Finalized, Slot: 8}})
	do(chain.StatusSeen{Batch: 5, Status: chain.TxStatus{State: chain.Failed, Slot: 8, Err: "custom"}})
	return s
}

// TestRestoreRefusesDamage: no byte of the journal form can change into a state that Step could not have reached.
func TestRestoreRefusesDamage(t *testing.T) {
	t.Parallel()
	good := someState(t).Marshal()
	if _, err := chain.Restore(good, params()); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		b := bytes.Clone(good)
		switch rapid.IntRange(0, 2).Draw(t, "damage") {
		case 0:
			b = b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
		case 1:
			b = append(b, 0)
		case 2:
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		}
		s, err := chain.Restore(b, params())
		if err != nil {
			if !errors.Is(err, chain.ErrMalformed) {
				t.Fatalf("%v", err)
			}
			return
		}
		owed, paid, flying := s.Totals()
		if paid+flying > owed || !bytes.Equal(s.Marshal(), b) {
			t.Fatalf("owed %d, paid %d, in flight %d", owed, paid, flying)
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add(chain.New(root(0), params()).Marshal())
	f.Add(someState(f).Marshal())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := chain.Restore(b, params())
		if err != nil {
			return
		}
		if again := s.Marshal(); !bytes.Equal(again, b) {
			t.Fatalf("%d bytes come back as other %d", len(b), len(again))
		}
		if _, _, err := s.Step(time.Unix(1, 0), chain.Ticked{}); err != nil {
			t.Fatalf("a restored settlement refuses to go on: %v", err)
		}
	})
}

func TestCheckAnchored(t *testing.T) {
	t.Parallel()
	c := chaintest.NewChain(chaintest.Config{})
	l := c.Ledger(buyer)
	receipts := []sign.Hash{root(1), root(2), root(3), root(4), root(5)}
	anchor := chain.Anchor{Root: chain.RootOf(receipts), Count: uint64(len(receipts))}
	send := func(memo []byte) chain.TxID {
		tx, err := l.Prepare(t.Context(), chain.Payment{Memo: memo})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Send(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		c.Advance(chaintest.FinalBlocks + 2)
		return tx.ID
	}
	id, other := send(anchor.Memo()), send([]byte("hello"))
	for i, r := range receipts {
		got, slot, err := chain.CheckAnchored(t.Context(), l, id, chain.OfReceipts, r, i, chain.ProofOf(receipts, i))
		if err != nil || got != anchor || slot == 0 {
			t.Errorf("receipt %d: %v in slot %d, %v", i, got, slot, err)
		}
	}
	if _, _, err := chain.CheckAnchored(t.Context(), l, id, chain.OfReceipts, receipts[1], 0, chain.ProofOf(receipts, 0)); !errors.Is(err, merkle.ErrRoot) {
		t.Errorf("another receipt: %v", err)
	}
	if _, _, err := chain.CheckAnchored(t.Context(), l, other, chain.OfReceipts, receipts[0], 0, nil); !errors.Is(err, chain.ErrMalformed) {
		t.Errorf("another memo: %v", err)
	}
	if _, _, err := chain.CheckAnchored(t.Context(), l, "nothing", chain.OfReceipts, receipts[0], 0, nil); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("no transaction: %v", err)
	}
}

// BenchmarkStep is a settlement of the largest size, from owed to settled, without a chain.
func BenchmarkStep(b *testing.B) {
	var owed []chain.Owed
	for i := range chain.MaxAccounts {
		owed = append(owed, chain.Owed{Lease: market.LeaseID(sign.Sum([]byte{byte(i), byte(i >> 8)})), To: key(i), Cumulative: 1})
	}
	b.ReportAllocs()
	steps := 0
	for b.Loop() {
		s := chain.New(root(1), params())
		events := []chain.Event{chain.AmountsOwed{Owed: owed}}
		for len(events) > 0 {
			next, effects, err := s.Step(time.Unix(1, 0), events[0])
			if err != nil {
				b.Fatal(err)
			}
			s, events, steps = next, events[1:], steps+1
			for _, e := range effects {
				switch e := e.(type) {
				case chain.Prepare:
					events = append(events, chain.PaymentPrepared{Batch: e.Batch, Tx: chain.Prepared{ID: "x", Raw: []byte{1}, Count: min(8, len(e.Payment.Payouts))}})
				case chain.Send:
					events = append(events, chain.StatusSeen{Batch: e.Batch, Status: chain.TxStatus{State: chain.Finalized}})
				}
			}
		}
		if !s.Done() {
			b.Fatal("not settled")
		}
	}
	b.ReportMetric(float64(chain.MaxAccounts*b.N)/b.Elapsed().Seconds(), "payouts/s")
	b.ReportMetric(float64(steps)/float64(b.N), "steps")
}
