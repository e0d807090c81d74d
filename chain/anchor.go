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

// Anchor commits to a batch of receipts, in a transaction's memo:
//
//	starling:anchor:1:<root, 64 hex>:<count, decimal>:<ref, 16 hex>
//
// Root is the plain Merkle root (market/merkle) over the receipts' hashes. Ref makes the transaction unlike any other
// of the same payer, or two equal payments within one blockhash would be one transaction and one of them never paid.
type Anchor struct {
	Root  sign.Hash
	Count uint64 // receipts under Root
	Ref   Ref
}

// Ref names one batch of one settlement.
type Ref [8]byte

const (
	anchorPrefix = "starling:anchor:1:"
	// MaxAnchor is the length in bytes of the longest anchor.
	MaxAnchor = len(anchorPrefix) + 2*sign.HashSize + 1 + 20 + 1 + 16
)

func (r Ref) String() string { return hex.EncodeToString(r[:]) }

// Memo is the one text form of the anchor.
func (a Anchor) Memo() []byte {
	b := make([]byte, 0, MaxAnchor)
	b = append(b, anchorPrefix...)
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
	rest, ours := bytes.CutPrefix(memo, []byte(anchorPrefix))
	fields := bytes.Split(rest, []byte(":"))
	if !ours || len(fields) != 3 || len(fields[0]) != 2*len(a.Root) || len(fields[2]) != 2*len(a.Ref) {
		return a, fmt.Errorf("anchor %q: %w", memo, ErrMalformed)
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

// RootOf is the root that an anchor of these receipts carries: the plain Merkle root over their 32-byte hashes, in this order.
func RootOf(receipts []sign.Hash) sign.Hash { return merkle.Root(leaves(receipts)) }

// ProofOf is the path that CheckAnchored takes for receipts[i]. It panics when there is none.
func ProofOf(receipts []sign.Hash, i int) merkle.Proof { return merkle.Prove(leaves(receipts), i) }

func leaves(receipts []sign.Hash) [][]byte {
	out := make([][]byte, len(receipts))
	for i := range receipts {
		out[i] = receipts[i][:]
	}
	return out
}

// CheckAnchored reads the anchor in a final transaction and checks that a receipt is number i under it. It returns the
// slot since which the receipt can be proven to exist. Errors: ErrNotFound (no such transaction, no memo), ErrMalformed
// (another memo), those of merkle.Proof.Verify, the ledger's.
func CheckAnchored(ctx context.Context, l Ledger, id TxID, receipt sign.Hash, i int, proof merkle.Proof) (Anchor, market.Slot, error) {
	text, slot, err := l.Memo(ctx, id)
	if err != nil {
		return Anchor{}, 0, err
	}
	a, err := ParseAnchor(text)
	if err != nil {
		return Anchor{}, 0, err
	}
	if a.Count > math.MaxInt32 {
		return Anchor{}, 0, fmt.Errorf("anchor of %d receipts: %w", a.Count, ErrMalformed)
	}
	if err := proof.Verify(a.Root, receipt[:], i, int(a.Count)); err != nil {
		return Anchor{}, 0, fmt.Errorf("receipt %d of transaction %s: %w", i, id, err)
	}
	return a, slot, nil
}
