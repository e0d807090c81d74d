package chain

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// Anchor commits to a batch of receipts, in an account of the network's program, or of audit records, in a
// transaction's memo:
//
//	starling:records:1:<root, 64 hex>:<count, decimal>:<ref, 16 hex>
//
// Root is the plain Merkle root (market/merkle) over their hashes.
type Anchor struct {
	Of    Of
	Root  sign.Hash
	Count uint64 // of them under Root
	Ref   Ref    // of records
}

// Of is the kind of object under an anchor, so that a receipt cannot pass as a record, nor a record as a receipt.
type Of uint8

// Kinds of anchored objects.
const (
	OfReceipts Of = iota
	OfRecords
)

const anchorPrefix = "starling:records:1:"

func (o Of) String() string { return [...]string{OfReceipts: "receipts", OfRecords: "records"}[o] }

// Ref distinguishes one anchoring of a key from its others.
type Ref [8]byte

// RefOf is the ref of a key's anchor of this root, of those with the same root the number-th.
func RefOf(root sign.Hash, number uint32) Ref {
	var no [4]byte
	binary.LittleEndian.PutUint32(no[:], number)
	sum := sign.Sum([]byte("starling/settlement/v1"), root[:], no[:])
	return Ref(sum[:8])
}

// MaxAnchor is the length in bytes of the longest anchor.
const MaxAnchor = len(anchorPrefix) + 2*sign.HashSize + 1 + 20 + 1 + 16

func (r Ref) String() string { return hex.EncodeToString(r[:]) }

// Memo is the one text form of an anchor of records.
func (a Anchor) Memo() []byte {
	b := make([]byte, 0, MaxAnchor)
	b = append(b, anchorPrefix...)
	b = hex.AppendEncode(b, a.Root[:])
	b = append(b, ':')
	b = strconv.AppendUint(b, a.Count, 10)
	b = append(b, ':')
	return hex.AppendEncode(b, a.Ref[:])
}

// ParseAnchor parses exactly the output of Memo: lower-case digits, no leading zero, nothing after. Otherwise it
// returns ErrMalformed; a memo on chain with this error was written by another program.
func ParseAnchor(memo []byte) (Anchor, error) {
	var a Anchor
	if len(memo) > MaxAnchor {
		return a, fmt.Errorf("anchor of %d bytes: %w", len(memo), ErrMalformed)
	}
	rest, ours := bytes.CutPrefix(memo, []byte(anchorPrefix))
	a.Of = OfRecords
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

// ProofOf returns the path of hashes[i] for CheckAnchored. It panics if i is out of range.
func ProofOf(hashes []sign.Hash, i int) merkle.Proof { return merkle.Prove(leaves(hashes), i) }

func leaves(hashes []sign.Hash) [][]byte {
	out := make([][]byte, len(hashes))
	for i := range hashes {
		out[i] = hashes[i][:]
	}
	return out
}

// CheckAnchored reads the anchor in the memo of a final transaction and checks that a record is number i under it. It
// returns the slot of the anchor, in which the record existed. It returns ErrNotFound (no such transaction, no memo),
// ErrMalformed (another memo), and errors of merkle.Proof.Verify and the ledger.
func CheckAnchored(
	ctx context.Context, l Memos, id TxID, record sign.Hash, i int, proof merkle.Proof,
) (Anchor, market.Slot, error) {
	text, slot, err := l.Memo(ctx, id)
	if err != nil {
		return Anchor{}, 0, err
	}
	a, err := ParseAnchor(text)
	if err != nil {
		return Anchor{}, 0, err
	}
	if err := a.holds(record, i, proof); err != nil {
		return Anchor{}, 0, fmt.Errorf("number %d of transaction %s: %w", i, id, err)
	}
	return a, slot, nil
}

// holds returns an error if a hash is not number i under the anchor.
func (a Anchor) holds(leaf sign.Hash, i int, proof merkle.Proof) error {
	if a.Count > math.MaxInt32 {
		return fmt.Errorf("anchor of %d: %w", a.Count, ErrMalformed)
	}
	return proof.Verify(a.Root, leaf[:], i, int(a.Count))
}
