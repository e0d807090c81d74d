package chain_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Offsets in an inclusion.
const (
	atCount = 2 + sign.HashSize
	atIndex = atCount + 8 + 8
	atTx    = atIndex + 4 + 8
)

func inclusion() chain.Inclusion {
	hashes := []sign.Hash{root(1), root(2), root(3), root(4), root(5)}
	a := chain.Anchor{Of: chain.OfRecords, Root: chain.RootOf(hashes), Count: 5, Ref: chain.Ref{7}}
	return chain.Include(a, hashes, 3, "transaction", 90)
}

func TestInclusionLayoutRefused(t *testing.T) {
	t.Parallel()
	good := inclusion().Marshal()
	put := func(at int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { return slices.Replace(b, at, at+len(v), v...) }
	}
	for what, change := range map[string]func([]byte) []byte{
		"nothing":          func([]byte) []byte { return nil },
		"version 0":        put(0, 0),
		"version 2":        put(0, 2),
		"of neither":       put(1, byte(chain.OfRecords)+1),
		"a negative index": put(atIndex, 0, 0, 0, 0x80),
		"no transaction":   func(b []byte) []byte { return slices.Delete(put(atTx, 0)(b), atTx+1, atTx+12) },
		"an id to the end": put(atTx, 255),
		"an id of 89 bytes": func(b []byte) []byte {
			return slices.Insert(put(atTx, 89)(b), atTx+1, make([]byte, 78)...)
		},
		"half a hash more": func(b []byte) []byte { return append(b, make([]byte, sign.HashSize/2)...) },
		"a path that is long": func(b []byte) []byte {
			return append(b, make([]byte, merkle.MaxDepth*sign.HashSize)...)
		},
		"more than ever": func(b []byte) []byte { return append(b, make([]byte, chain.MaxInclusion)...) },
	} {
		if in, err := chain.UnmarshalInclusion(change(bytes.Clone(good))); !errors.Is(err, chain.ErrMalformed) {
			t.Errorf("%s: %+v, %v", what, in, err)
		}
	}
	longest := inclusion()
	longest.Tx = chain.TxID(strings.Repeat("x", 88))
	longest.Path = make(merkle.Proof, merkle.MaxDepth)
	b := longest.Marshal()
	if _, err := chain.UnmarshalInclusion(b); err != nil || len(b) != chain.MaxInclusion {
		t.Errorf("the longest: %d bytes of %d, %v", len(b), chain.MaxInclusion, err)
	}
	// Cut off, it is malformed, or has a shorter path, which then leads to another root.
	for n := range len(good) {
		if in, err := chain.UnmarshalInclusion(good[:n]); err == nil && in.Check(root(4)) == nil {
			t.Fatalf("the first %d bytes of %d show as much as all", n, len(good))
		}
	}
}

// TestInclusionOfEach: of any number of hashes each is shown at its own index, and at no other.
func TestInclusionOfEach(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "n")
		hashes := make([]sign.Hash, n)
		for i := range hashes {
			hashes[i] = root(i)
		}
		a := chain.Anchor{Of: chain.OfRecords, Root: chain.RootOf(hashes), Count: uint64(n)}
		i, j := rapid.IntRange(0, n-1).Draw(t, "i"), rapid.IntRange(0, n-1).Draw(t, "j")
		in := chain.Include(a, hashes, i, "tx", 1)
		if err := in.Check(hashes[j]); (err == nil) != (i == j) {
			t.Fatalf("hash %d at index %d of %d: %v", j, i, n, err)
		}
		in.Index = j
		if err := in.Check(hashes[i]); (err == nil) != (i == j) {
			t.Fatalf("hash %d, said to be number %d of %d: %v", i, j, n, err)
		}
		in.Index = i
		if in.Anchor.Count = uint64(n) + 1<<31; in.Check(hashes[i]) == nil {
			t.Fatal("a count that no tree has")
		}
	})
}

// memos is a chain that carries one memo, or fails.
type memos struct {
	text []byte
	slot market.Slot
	err  error
}

func (m memos) Memo(context.Context, chain.TxID) ([]byte, market.Slot, error) {
	return m.text, m.slot, m.err
}

// TestCheckOnRefused: the chain's answer decides, whatever the inclusion says of itself.
func TestCheckOnRefused(t *testing.T) {
	t.Parallel()
	in := inclusion()
	memo := in.Anchor.Memo()
	other := in.Anchor
	other.Count++
	for what, c := range map[string]struct {
		chain memos
		want  error
	}{
		"as it says":     {memos{memo, in.Slot, nil}, nil},
		"no endpoint":    {memos{nil, 0, chain.ErrDown}, chain.ErrDown},
		"two answers":    {memos{nil, 0, chain.ErrDisagree}, chain.ErrDisagree},
		"no transaction": {memos{nil, 0, chain.ErrNotFound}, chain.ErrNotFound},
		"no memo":        {memos{nil, in.Slot, nil}, chain.ErrMalformed},
		"another slot":   {memos{memo, in.Slot + 1, nil}, chain.ErrMalformed},
		"another anchor": {memos{chain.Anchor{Of: chain.OfRecords}.Memo(), in.Slot, nil}, merkle.ErrIndex},
		"one more":       {memos{other.Memo(), in.Slot, nil}, merkle.ErrRoot},
		"text after it":  {memos{append(bytes.Clone(memo), ' '), in.Slot, nil}, chain.ErrMalformed},
	} {
		err := in.CheckOn(t.Context(), c.chain, root(4))
		if (c.want == nil) != (err == nil) || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	if err := in.CheckOn(t.Context(), memos{memo, in.Slot, nil}, root(5)); !errors.Is(err, merkle.ErrRoot) {
		t.Errorf("another record: %v", err)
	}
}

func TestTestimonyLayoutRefused(t *testing.T) {
	t.Parallel()
	good := testimony(t, anchoredIn-1, 5).Marshal()
	if _, err := chain.UnmarshalTestimony(good); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		b    []byte
		want error
	}{
		"nothing":            {nil, market.ErrMalformed},
		"a receipt cut off":  {good[:verify.ReceiptSize-1], market.ErrMalformed},
		"a receipt alone":    {good[:verify.ReceiptSize], chain.ErrMalformed},
		"an unknown receipt": {append([]byte{9}, good[1:]...), market.ErrMalformed},
		"an unknown inclusion": {slices.Replace(bytes.Clone(good), verify.ReceiptSize, verify.ReceiptSize+1, 9),
			chain.ErrMalformed}, "half a hash more": {append(bytes.Clone(good), make([]byte, 16)...),
			chain.ErrMalformed},
	} {
		if _, err := chain.UnmarshalTestimony(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	// A change of any byte of the receipt is a change of a signed statement.
	for i := range verify.ReceiptSize {
		b := bytes.Clone(good)
		b[i] ^= 1
		if x, err := chain.UnmarshalTestimony(b); err == nil && x.Check(domain, 10) == nil {
			t.Fatalf("byte %d of the receipt can be changed", i)
		}
	}
}

// TestAnchorCodec: every anchor of records has one text, within a memo's length.
func TestAnchorCodec(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := chain.Anchor{Of: chain.OfRecords, Count: rapid.Uint64().Draw(t, "count")}
		copy(a.Root[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "root"))
		copy(a.Ref[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "ref"))
		memo := a.Memo()
		if err := chain.CheckMemo(memo); err != nil || len(memo) > chain.MaxAnchor {
			t.Fatalf("%q: %v", memo, err)
		}
		if back, err := chain.ParseAnchor(memo); err != nil || back != a {
			t.Fatalf("%q comes back as %+v, %v", memo, back, err)
		}
		// One letter changed is another anchor or none.
		i, c := rapid.IntRange(0, len(memo)-1).Draw(t, "at"), rapid.Byte().Draw(t, "byte")
		changed := bytes.Clone(memo)
		changed[i] = c
		if back, err := chain.ParseAnchor(changed); err == nil && (back == a) != (c == memo[i]) {
			t.Fatalf("%q and %q are both %+v", memo, changed, a)
		}
	})
}

// TestRefOf: a key's anchors have different refs, by root and by number.
func TestRefOf(t *testing.T) {
	t.Parallel()
	seen := map[chain.Ref]bool{}
	for r := range 50 {
		for number := range uint32(50) {
			ref := chain.RefOf(root(r), number)
			if seen[ref] || ref != chain.RefOf(root(r), number) {
				t.Fatalf("the ref of root %d, number %d, is not its own", r, number)
			}
			seen[ref] = true
			if got, err := chain.ParseAnchor(chain.Anchor{Of: chain.OfRecords, Ref: ref}.Memo()); err != nil ||
				got.Ref != ref {
				t.Fatalf("%s comes back as %s, %v", ref, got.Ref, err)
			}
		}
	}
	var number [4]byte
	binary.LittleEndian.PutUint32(number[:], 7)
	r := root(1)
	want := sign.Sum([]byte("starling/settlement/v1"), r[:], number[:])
	if got := chain.RefOf(r, 7); !bytes.Equal(got[:], want[:8]) {
		t.Errorf("ref %s, want %x", got, want[:8])
	}
}
