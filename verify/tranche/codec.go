package tranche

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Marshal returns the layout of the package comment.
func (l Leaf) Marshal() [LeafSize]byte {
	var b [LeafSize]byte
	le := binary.LittleEndian
	b[0] = l.Version
	le.PutUint16(b[2:], l.Index)
	copy(b[8:], l.Provider[:])
	copy(b[40:], l.Lease[:])
	copy(b[72:], l.Payout[:])
	le.PutUint64(b[104:], uint64(l.Rate))
	le.PutUint64(b[112:], uint64(l.Cap))
	le.PutUint64(b[120:], uint64(l.Start))
	le.PutUint64(b[128:], uint64(l.End))
	return b
}

// UnmarshalLeaf decodes the layout without trailing bytes. It returns market.ErrMalformed or ErrIndex otherwise.
func UnmarshalLeaf(b []byte) (Leaf, error) {
	if len(b) != LeafSize {
		return Leaf{}, fmt.Errorf("%w: leaf of %d bytes, want %d", market.ErrMalformed, len(b), LeafSize)
	}
	le := binary.LittleEndian
	if b[1] != 0 || le.Uint32(b[4:]) != 0 {
		return Leaf{}, fmt.Errorf("%w: leaf: reserved bytes are set", market.ErrMalformed)
	}
	l := Leaf{
		Version: b[0], Index: le.Uint16(b[2:]), Provider: sign.Key(b[8:40]), Lease: market.LeaseID(b[40:72]),
		Payout: sign.Key(b[72:104]), Rate: market.Rate(le.Uint64(b[104:])), Cap: market.Amount(le.Uint64(b[112:])),
		Start: market.Slot(le.Uint64(b[120:])), End: market.Slot(le.Uint64(b[128:])),
	}
	if err := l.validate(); err != nil {
		return Leaf{}, err
	}
	return l, nil
}

// Marshal returns the layout of the package comment.
func (r Root) Marshal() [RootSize]byte {
	var b [RootSize]byte
	copy(b[:], r.Hash[:])
	binary.LittleEndian.PutUint64(b[32:], uint64(r.Sum))
	binary.LittleEndian.PutUint16(b[40:], r.Count)
	return b
}

// UnmarshalRoot decodes the layout without trailing bytes. It returns market.ErrMalformed or ErrCount otherwise.
func UnmarshalRoot(b []byte) (Root, error) {
	if len(b) != RootSize {
		return Root{}, fmt.Errorf("%w: root of %d bytes, want %d", market.ErrMalformed, len(b), RootSize)
	}
	r := Root{Hash: sign.Hash(b[:32]), Sum: market.Amount(binary.LittleEndian.Uint64(b[32:])),
		Count: binary.LittleEndian.Uint16(b[40:])}
	if r.Count == 0 || r.Count > MaxLeaves {
		return Root{}, fmt.Errorf("%w: %d", ErrCount, r.Count)
	}
	return r, nil
}

// Marshal returns the layout of the package comment.
func (p Proof) Marshal() []byte {
	b := make([]byte, 1, 1+len(p)*siblingSize)
	b[0] = byte(len(p))
	for _, s := range p {
		b = s.append(b)
	}
	return b
}

// ProofSize is the length of a proof's layout by its first byte.
func ProofSize(count uint8) int { return 1 + int(count)*siblingSize }

// UnmarshalProof decodes the layout without trailing bytes. It returns market.ErrMalformed otherwise.
func UnmarshalProof(b []byte) (Proof, error) {
	if len(b) == 0 || b[0] > MaxDepth || len(b) != ProofSize(b[0]) {
		return nil, fmt.Errorf("%w: proof of %d bytes", market.ErrMalformed, len(b))
	}
	p := make(Proof, b[0])
	for i := range p {
		s := b[1+i*siblingSize:]
		p[i] = Sibling{Hash: sign.Hash(s[:32]), Sum: market.Amount(binary.LittleEndian.Uint64(s[32:]))}
	}
	return p, nil
}
