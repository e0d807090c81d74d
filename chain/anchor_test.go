package chain_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

func root(i int) sign.Hash { return sign.Sum([]byte("root"), []byte{byte(i)}) }

var author = sign.Key(sign.Sum([]byte("author")))

func TestAnchorText(t *testing.T) {
	t.Parallel()
	a := chain.Anchor{Of: chain.OfRecords, Root: sign.Hash{0xab}, Count: 1250, Ref: chain.Ref{1, 2}}
	want := "starling:records:1:ab" + strings.Repeat("0", 62) + ":1250:0102000000000000"
	if got := string(a.Memo()); got != want {
		t.Errorf("memo %q, want %q", got, want)
	}
	for name, bad := range map[string]string{
		"empty":         "",
		"other":         "hello",
		"of receipts":   strings.Replace(want, "records", "anchor", 1),
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
	f.Add([]byte("starling:records:1:::"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := chain.ParseAnchor(b)
		if err == nil && !bytes.Equal(a.Memo(), b) {
			t.Fatalf("%q comes back as %q", b, a.Memo())
		}
	})
}

func TestCheckAnchored(t *testing.T) {
	t.Parallel()
	c := chaintest.NewChain(chaintest.Config{})
	l := c.Ledger(author)
	records := []sign.Hash{root(1), root(2), root(3), root(4), root(5)}
	anchor := chain.Anchor{Of: chain.OfRecords, Root: chain.RootOf(records), Count: uint64(len(records))}
	send := func(memo []byte) chain.TxID {
		tx, err := l.SignMemo(t.Context(), memo)
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
	for i, r := range records {
		got, slot, err := chain.CheckAnchored(t.Context(), l, id, r, i, chain.ProofOf(records, i))
		if err != nil || got != anchor || slot == 0 {
			t.Errorf("record %d: %v in slot %d, %v", i, got, slot, err)
		}
	}
	if _, _, err := chain.CheckAnchored(t.Context(), l, id, records[1], 0, chain.ProofOf(records, 0)); !errors.Is(err, merkle.ErrRoot) {
		t.Errorf("another record: %v", err)
	}
	if _, _, err := chain.CheckAnchored(t.Context(), l, other, records[0], 0, nil); !errors.Is(err, chain.ErrMalformed) {
		t.Errorf("another memo: %v", err)
	}
	if _, _, err := chain.CheckAnchored(t.Context(), l, "nothing", records[0], 0, nil); !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("no transaction: %v", err)
	}
}
