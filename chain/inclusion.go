package chain

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// Inclusion is the proof that a hash is number Index under the anchor of a final transaction.
type Inclusion struct {
	Anchor Anchor
	Index  int
	Path   merkle.Proof
	Tx     TxID
	Slot   market.Slot // of its block
}

// The form of an Inclusion, little-endian:
//
//	version u8 (1) ‖ of u8 ‖ root[32] ‖ count u64 ‖ ref[8] ‖ index u32 ‖ slot u64 ‖ n u8 ‖ txid[n]
//	‖ proof (market/merkle)
const inclusionVersion = 1

// MaxInclusion is the length in bytes of the longest form.
const MaxInclusion = 2 + sign.HashSize + 8 + 8 + 4 + 8 + 1 + maxTxID + 1 + merkle.MaxDepth*sign.HashSize

// Include returns the inclusion of hashes[i] under a transaction's anchor over all of them. It panics if i is out of
// range.
func Include(a Anchor, hashes []sign.Hash, i int, tx TxID, slot market.Slot) Inclusion {
	return Inclusion{Anchor: a, Index: i, Path: ProofOf(hashes, i), Tx: tx, Slot: slot}
}

// Check verifies the place of a hash under the anchor, without the chain. It returns the errors of merkle.Proof.Verify
// and ErrMalformed.
func (in Inclusion) Check(leaf sign.Hash) error { return in.Anchor.holds(leaf, in.Index, in.Path) }

// CheckOn also checks on the chain that the transaction is final and has this anchor of records, in this slot. It
// returns the errors of CheckAnchored.
func (in Inclusion) CheckOn(ctx context.Context, m Memos, record sign.Hash) error {
	a, slot, err := CheckAnchored(ctx, m, in.Tx, record, in.Index, in.Path)
	if err == nil && (a != in.Anchor || slot != in.Slot) {
		err = fmt.Errorf("transaction %s is of slot %d and carries %s: %w", in.Tx, slot, a.Memo(), ErrMalformed)
	}
	return err
}

// Marshal gives the one form.
func (in Inclusion) Marshal() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, MaxInclusion)
	b = append(b, inclusionVersion, byte(in.Anchor.Of))
	b = append(b, in.Anchor.Root[:]...)
	b = le.AppendUint64(b, in.Anchor.Count)
	b = append(b, in.Anchor.Ref[:]...)
	b = le.AppendUint32(b, uint32(in.Index))
	b = le.AppendUint64(b, uint64(in.Slot))
	b = append(append(b, byte(len(in.Tx))), in.Tx...)
	return append(b, in.Path.Marshal()...)
}

// UnmarshalInclusion reads exactly that. It does not verify anything under the anchor: Check does. It returns
// ErrMalformed.
func UnmarshalInclusion(b []byte) (Inclusion, error) {
	bad := func(what string) (Inclusion, error) {
		return Inclusion{}, fmt.Errorf("proof of an anchor, %d bytes: %s: %w", len(b), what, ErrMalformed)
	}
	if len(b) > MaxInclusion {
		return bad("length")
	}
	r := fields.Reader{Rest: b}
	version, of := r.U8(), Of(r.U8())
	in := Inclusion{Anchor: Anchor{Of: of, Root: sign.Hash(r.Take(sign.HashSize)), Count: r.U64(),
		Ref: Ref(r.Take(len(Ref{})))}}
	index := r.U32()
	in.Slot = market.Slot(r.U64())
	id := r.Take(int(r.U8()))
	if r.Bad || version != inclusionVersion || of > OfRecords || len(id) == 0 || len(id) > maxTxID ||
		index > math.MaxInt32 {
		return bad("fields")
	}
	in.Index, in.Tx = int(index), TxID(id)
	var err error
	if in.Path, err = merkle.UnmarshalProof(r.Rest); err != nil {
		return bad(err.Error())
	}
	return in, nil
}

// maxTxID bounds a transaction id: 64 bytes in base58.
const maxTxID = 88
