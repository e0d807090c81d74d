package chain

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// Anchor commits to a batch of receipts, or of audit records, in a transaction's memo:
//
//	starling:anchor:1:<root, 64 hex>:<count, decimal>:<ref, 16 hex>      receipts
//	starling:records:1:<root, 64 hex>:<count, decimal>:<ref, 16 hex>     audit records
//
// Root is the plain Merkle root (market/merkle) over their hashes. Ref makes the transaction unlike any other
// of the same payer, or two equal payments within one blockhash would be one transaction and one of them never paid.
type Anchor struct {
	Of    Of
	Root  sign.Hash
	Count uint64 // of them under Root
	Ref   Ref
}

// Of is what is under an anchor: no receipt can be passed off as a record, nor a record as a receipt.
type Of uint8

// What is anchored.
const (
	OfReceipts Of = iota
	OfRecords
)

var anchorPrefixes = [...]string{OfReceipts: "starling:anchor:1:", OfRecords: "starling:records:1:"}

func (o Of) String() string { return [...]string{OfReceipts: "receipts", OfRecords: "records"}[o] }

// Ref names one batch of one settlement.
type Ref [8]byte

// MaxAnchor is the length in bytes of the longest anchor.
const MaxAnchor = len("starling:records:1:") + 2*sign.HashSize + 1 + 20 + 1 + 16

func (r Ref) String() string { return hex.EncodeToString(r[:]) }

// Memo is the one text form of the anchor.
func (a Anchor) Memo() []byte {
	b := make([]byte, 0, MaxAnchor)
	b = append(b, anchorPrefixes[a.Of]...)
	b = hex.AppendEncode(b, a.Root[:])
	b = append(b, ':')
	b = strconv.AppendUint(b, a.Count, 10)
	b = append(b, ':')
	return hex.AppendEncode(b, a.Ref[:])
}

// ParseAnchor reads exactly what Memo writes: lower-case digits, no leading zero, nothing after. ErrMalformed otherwise,
// which for a memo found on chain means that it is somebody else's.
func ParseAnchor(memo []byte) (Anchor, error) {
	var a Anchor
	if len(memo) > MaxAnchor {
		return a, fmt.Errorf("anchor of %d bytes: %w", len(memo), ErrMalformed)
	}
	rest, ours := bytes.CutPrefix(memo, []byte(anchorPrefixes[OfReceipts]))
	if !ours {
		rest, ours = bytes.CutPrefix(memo, []byte(anchorPrefixes[OfRecords]))
		a.Of = OfRecords
	}
	fields := bytes.Split(rest, []byte(":"))
	if !ours || len(fields) != 3 || len(fields[0]) != 2*len(a.Root) || len(fields[2]) != 2*len(a.Ref) {
		return Anchor{}, fmt.Errorf("anchor %q: %w", memo, ErrMalformed)
	}
	_, errRoot := hex.Decode(a.Root[:], fields[0])
	count, errCount := strconv.ParseUint(string(fields[1]), 10, 64)
	_, errRef := hex.Decode(a.Ref[:], fields[2])
	a.Count = count
	if errRoot != nil || errCount != nil || errRef != nil || !bytes.Equal(a.Memo(), memo) {
		return Anchor{}, fmt.Errorf("anchor %q: %w", memo, ErrMalformed)
	}
	return a, nil
}

// RootOf is the root that an anchor of these carries: the plain Merkle root over their 32-byte hashes, in this order.
func RootOf(hashes []sign.Hash) sign.Hash { return merkle.Root(leaves(hashes)) }

// ProofOf is the path that CheckAnchored takes for hashes[i]. It panics when there is none.
func ProofOf(hashes []sign.Hash, i int) merkle.Proof { return merkle.Prove(leaves(hashes), i) }

func leaves(hashes []sign.Hash) [][]byte {
	out := make([][]byte, len(hashes))
	for i := range hashes {
		out[i] = hashes[i][:]
	}
	return out
}

// Memos reads the memo of a final transaction: of Ledger.
type Memos interface {
	Memo(ctx context.Context, id TxID) ([]byte, market.Slot, error)
}

// CheckAnchored reads the anchor in a final transaction and checks that a receipt or a record is number i under it. It returns the
// slot since which that can be proven to exist. Errors: ErrNotFound (no such transaction, no memo), ErrMalformed
// (another memo), those of merkle.Proof.Verify, the ledger's.
func CheckAnchored(ctx context.Context, l Memos, id TxID, of Of, leaf sign.Hash, i int, proof merkle.Proof) (Anchor, market.Slot, error) {
	text, slot, err := l.Memo(ctx, id)
	if err != nil {
		return Anchor{}, 0, err
	}
	a, err := ParseAnchor(text)
	if err != nil {
		return Anchor{}, 0, err
	}
	if a.Of != of {
		return Anchor{}, 0, fmt.Errorf("transaction %s anchors %s, not %s: %w", id, a.Of, of, ErrMalformed)
	}
	if err := a.holds(leaf, i, proof); err != nil {
		return Anchor{}, 0, fmt.Errorf("number %d of transaction %s: %w", i, id, err)
	}
	return a, slot, nil
}

// holds says why a hash is not number i under the anchor.
func (a Anchor) holds(leaf sign.Hash, i int, proof merkle.Proof) error {
	if a.Count > math.MaxInt32 {
		return fmt.Errorf("anchor of %d: %w", a.Count, ErrMalformed)
	}
	return proof.Verify(a.Root, leaf[:], i, int(a.Count))
}
