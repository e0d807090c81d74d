package audit

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

// Sizes of the statements, bytes.
const (
	AnswerSize  = 280
	ShownSize   = 72
	VerdictSize = 184
)

// MaxAttempts is how often a provider may begin in one window.
const MaxAttempts = 3

const version = 1

// Answer is a provider's signed statement of one unit's results. Tag "starling:answer"; layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  attempt, 1 to 3
//	     2     6  reserved: 0
//	     8    32  provider, the signer
//	    40    32  unit id
//	    72     8  window
//	    80    32  product seed
//	   112    16  shape (challenge.Shape)
//	   128    32  product root
//	   160    32  dataset seed
//	   192    24  walk (challenge.Walk)
//	   216    32  walk seed
//	   248    32  walk root
type Answer struct {
	Target
	ProductSeed sign.Hash
	Shape       challenge.Shape
	ProductRoot sign.Hash
	DatasetSeed sign.Hash
	Walk        challenge.Walk
	WalkSeed    sign.Hash
	WalkRoot    sign.Hash
}

// Marshal returns the layout.
func (a Answer) Marshal() [AnswerSize]byte {
	var b [AnswerSize]byte
	b[0], b[1] = version, a.Attempt
	copy(b[8:], a.Provider[:])
	copy(b[40:], a.Unit[:])
	binary.LittleEndian.PutUint64(b[72:], uint64(a.Window))
	copy(b[80:], a.ProductSeed[:])
	shape, walk := a.Shape.Marshal(), a.Walk.Marshal()
	copy(b[112:], shape[:])
	copy(b[128:], a.ProductRoot[:])
	copy(b[160:], a.DatasetSeed[:])
	copy(b[192:], walk[:])
	copy(b[216:], a.WalkSeed[:])
	copy(b[248:], a.WalkRoot[:])
	return b
}

// UnmarshalAnswer decodes the layout without trailing bytes.
func UnmarshalAnswer(b []byte) (Answer, error) {
	if len(b) != AnswerSize || b[0] != version || !zero(b[2:8]) {
		return Answer{}, malformed("answer", "%d bytes, or unknown version or reserved bytes", len(b))
	}
	if b[1] < 1 || b[1] > MaxAttempts {
		return Answer{}, malformed("answer", "attempt %d", b[1])
	}
	shape, err := challenge.UnmarshalShape(b[112:128])
	if err != nil {
		return Answer{}, fmt.Errorf("%w: answer: %w", market.ErrMalformed, err)
	}
	walk, err := challenge.UnmarshalWalk(b[192:216])
	if err != nil {
		return Answer{}, fmt.Errorf("%w: answer: %w", market.ErrMalformed, err)
	}
	return Answer{
		Target: Target{
			Provider: sign.Key(b[8:40]), Unit: market.UnitID(b[40:72]),
			Window: Window(binary.LittleEndian.Uint64(b[72:])), Attempt: b[1],
		},
		ProductSeed: sign.Hash(b[80:112]), Shape: shape, ProductRoot: sign.Hash(b[128:160]),
		DatasetSeed: sign.Hash(b[160:192]), Walk: walk, WalkSeed: sign.Hash(b[216:248]),
		WalkRoot: sign.Hash(b[248:280]),
	}, nil
}

// Hash names the answer: SHA-256( "starling/answer/v1" ‖ layout ).
func (a Answer) Hash() sign.Hash {
	b := a.Marshal()
	return sign.Sum([]byte("starling/answer/v1"), b[:])
}

// Sign signs the answer.
func (a Answer) Sign(d sign.Domain, s sign.Signer) (sign.Signature, error) {
	b := a.Marshal()
	return s.Sign(d.Preimage(sign.TagAnswer, b[:]))
}

// Verify checks the provider's signature.
func (a Answer) Verify(d sign.Domain, sig sign.Signature) error {
	b := a.Marshal()
	return sign.Verify(a.Provider, d.Preimage(sign.TagAnswer, b[:]), sig)
}

// Shown is a provider's word for the entries it opened. Tag "starling:shown", signed by the answer's provider; layout:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     7  reserved: 0
//	     8    32  hash of the answer
//	    40    32  openings root: market/merkle over the openings, ( leaf u32 ‖ 32 values int32 ) each
type Shown struct {
	Answer   sign.Hash
	Openings sign.Hash
}

// OpeningLeaf is an opening as it stands under the openings root: 132 bytes.
func OpeningLeaf(o challenge.Opening) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, o.Leaf), o.Data()...)
}

func openingLeaves(os []challenge.Opening) [][]byte {
	leaves := make([][]byte, len(os))
	for i, o := range os {
		leaves[i] = OpeningLeaf(o)
	}
	return leaves
}

// Show is the statement over openings.
func Show(a Answer, os []challenge.Opening) Shown {
	return Shown{Answer: a.Hash(), Openings: merkle.Root(openingLeaves(os))}
}

// Marshal returns the layout.
func (s Shown) Marshal() [ShownSize]byte {
	var b [ShownSize]byte
	b[0] = version
	copy(b[8:], s.Answer[:])
	copy(b[40:], s.Openings[:])
	return b
}

// UnmarshalShown decodes the layout without trailing bytes.
func UnmarshalShown(b []byte) (Shown, error) {
	if len(b) != ShownSize || b[0] != version || !zero(b[1:8]) {
		return Shown{}, malformed("shown", "%d bytes, or unknown version or reserved bytes", len(b))
	}
	return Shown{Answer: sign.Hash(b[8:40]), Openings: sign.Hash(b[40:72])}, nil
}

// Sign signs the statement.
func (s Shown) Sign(d sign.Domain, by sign.Signer) (sign.Signature, error) {
	b := s.Marshal()
	return by.Sign(d.Preimage(sign.TagShown, b[:]))
}

// Verify checks a provider's signature.
func (s Shown) Verify(d sign.Domain, provider sign.Key, sig sign.Signature) error {
	b := s.Marshal()
	return sign.Verify(provider, d.Preimage(sign.TagShown, b[:]), sig)
}

func zero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
