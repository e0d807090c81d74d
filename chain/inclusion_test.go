package chain_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

func TestRecordsAnchor(t *testing.T) {
	t.Parallel()
	a := chain.Anchor{Of: chain.OfRecords, Root: sign.Hash{0xab}, Count: 1<<64 - 1, Ref: chain.Ref{1, 2}}
	want := "starling:records:1:ab" + strings.Repeat("0", 62) + ":18446744073709551615:0102000000000000"
	if got := string(a.Memo()); got != want || len(got) != chain.MaxAnchor || chain.MaxAnchor > chain.MaxMemo {
		t.Errorf("memo %q of %d bytes, want %q", got, len(got), want)
	}
	if got, err := chain.ParseAnchor([]byte(want)); err != nil || got != a {
		t.Errorf("%+v, %v", got, err)
	}
}

// What is shown of a record holds for it alone, offline and against the chain, and a receipts' anchor shows nothing of records.
func TestInclusion(t *testing.T) {
	t.Parallel()
	c := chaintest.NewChain(chaintest.Config{})
	l := c.Ledger(author)
	send := func(a chain.Anchor) (chain.TxID, chain.Inclusion) {
		tx, err := l.SignMemo(t.Context(), a.Memo())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Send(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		c.Advance(chaintest.FinalBlocks + 2)
		_, slot, err := l.Memo(t.Context(), tx.ID)
		if err != nil {
			t.Fatal(err)
		}
		return tx.ID, chain.Inclusion{Tx: tx.ID, Slot: slot}
	}
	records := []sign.Hash{root(1), root(2), root(3), root(4), root(5)}
	a := chain.Anchor{Of: chain.OfRecords, Root: chain.RootOf(records), Count: 5, Ref: chain.Ref{7}}
	id, at := send(a)
	for i, r := range records {
		in := chain.Include(a, records, i, id, at.Slot)
		back, err := chain.UnmarshalInclusion(in.Marshal())
		if err != nil || !reflect.DeepEqual(back, in) {
			t.Fatalf("%+v comes back as %+v, %v", in, back, err)
		}
		if err := back.Check(r); err != nil {
			t.Errorf("record %d: %v", i, err)
		}
		if err := back.CheckOn(t.Context(), l, r); err != nil {
			t.Errorf("record %d on chain: %v", i, err)
		}
		if err := back.Check(root(9)); !errors.Is(err, merkle.ErrRoot) {
			t.Errorf("another record: %v", err)
		}
		for name, change := range map[string]func(in *chain.Inclusion){
			"slot":     func(in *chain.Inclusion) { in.Slot++ },
			"ref":      func(in *chain.Inclusion) { in.Anchor.Ref[0]++ },
			"receipts": func(in *chain.Inclusion) { in.Anchor.Of = chain.OfReceipts },
		} {
			x := back
			change(&x)
			if err := x.CheckOn(t.Context(), l, r); !errors.Is(err, chain.ErrMalformed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		back.Tx = "nothing"
		if err := back.CheckOn(t.Context(), l, r); !errors.Is(err, chain.ErrNotFound) {
			t.Errorf("no transaction: %v", err)
		}
	}
}

func FuzzInclusion(f *testing.F) {
	records := []sign.Hash{{1}, {2}, {3}}
	a := chain.Anchor{Of: chain.OfRecords, Root: chain.RootOf(records), Count: 3}
	f.Add(chain.Include(a, records, 1, "tx", 9).Marshal())
	f.Add([]byte{1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := chain.UnmarshalInclusion(b)
		switch {
		case err != nil && !errors.Is(err, chain.ErrMalformed):
			t.Fatal(err)
		case err == nil && !bytes.Equal(in.Marshal(), b):
			t.Fatalf("%x comes back as %x", b, in.Marshal())
		case err == nil:
			_ = in.Check(sign.Hash{2})
		}
	})
}
