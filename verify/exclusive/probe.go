package exclusive

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
)

// Sizes of the statements, bytes.
const (
	QuestionSize = 96
	AnswerSize   = 72
	OpenedSize   = 88
	MeasuredSize = 64
	NonceSize    = 16
)

const version = 1

// Openings is how many leaves of an answer are opened: a provider that computed half of them to look twice as fast
// passes once in 65 536 times.
const Openings = 16

// Nonce is the buyer's randomness.
type Nonce [NonceSize]byte

// Question is a buyer's request for a probe. Tag "starling:probe", signed by the lease's buyer; layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  unit: which of the lease's computes, from 0
//	     2     6  reserved: 0
//	     8    32  lease id: the first of its line
//	    40     8  execution under the lease, from 1
//	    48     8  number of the probe in the execution, from 1
//	    56    16  nonce
//	    72    16  shape (challenge.Shape), a result of Fit
//	    88     8  slot, by the buyer's clock
type Question struct {
	Unit      uint8           `json:"unit,omitempty"`
	Lease     market.LeaseID  `json:"lease"`
	Execution uint64          `json:"execution"`
	Number    uint64          `json:"number"`
	Nonce     Nonce           `json:"nonce"`
	Shape     challenge.Shape `json:"shape"`
	At        market.Slot     `json:"at"`
}

// Check returns an error for an invalid question, ErrSize if the size of its product is out of bounds.
func (q Question) Check() error {
	if q.Execution < 1 || q.Number < 1 {
		return malformed("probe", "number %d of execution %d", q.Number, q.Execution)
	}
	if _, ok := kindOf(q.Shape); !ok {
		return fmt.Errorf("%w: %s", ErrSize, q.Shape)
	}
	return nil
}

// Marshal returns the layout.
func (q Question) Marshal() [QuestionSize]byte {
	var b [QuestionSize]byte
	b[0], b[1] = version, q.Unit
	copy(b[8:], q.Lease[:])
	binary.LittleEndian.PutUint64(b[40:], q.Execution)
	binary.LittleEndian.PutUint64(b[48:], q.Number)
	copy(b[56:], q.Nonce[:])
	shape := q.Shape.Marshal()
	copy(b[72:], shape[:])
	binary.LittleEndian.PutUint64(b[88:], uint64(q.At))
	return b
}

// UnmarshalQuestion decodes the layout without trailing bytes, and checks it.
func UnmarshalQuestion(b []byte) (Question, error) {
	if len(b) != QuestionSize || b[0] != version || !zero(b[2:8]) {
		return Question{}, malformed("probe", "%d bytes, or unknown version or reserved bytes", len(b))
	}
	shape, err := challenge.UnmarshalShape(b[72:88])
	if err != nil {
		return Question{}, fmt.Errorf("%w: probe: %w", market.ErrMalformed, err)
	}
	le := binary.LittleEndian
	q := Question{Unit: b[1], Lease: market.LeaseID(b[8:40]), Execution: le.Uint64(b[40:]), Number: le.Uint64(b[48:]),
		Nonce: Nonce(b[56:72]), Shape: shape, At: market.Slot(le.Uint64(b[88:]))}
	return q, q.Check()
}

// Seed is the seed of the product: SHA-256( "starling/probe/v1" ‖ layout ).
func (q Question) Seed() sign.Hash {
	b := q.Marshal()
	return sign.Sum([]byte("starling/probe/v1"), b[:])
}

// Sign signs the question as the lease's buyer.
func (q Question) Sign(d sign.Domain, s sign.Signer) (sign.Signature, error) {
	b := q.Marshal()
	return s.Sign(d.Preimage(sign.TagProbe, b[:]))
}

// Verify checks the buyer's signature.
func (q Question) Verify(d sign.Domain, buyer sign.Key, sig sign.Signature) error {
	b := q.Marshal()
	return sign.Verify(buyer, d.Preimage(sign.TagProbe, b[:]), sig)
}

// Answer is a provider's signed result. Tag "starling:probed"; layout:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     7  reserved: 0
//	     8    32  seed of the question, which names it
//	    40    32  root over the leaves of all tiles (challenge.Commitment)
type Answer struct {
	Seed sign.Hash
	Root sign.Hash
}

// Marshal returns the layout.
func (a Answer) Marshal() [AnswerSize]byte {
	var b [AnswerSize]byte
	b[0] = version
	copy(b[8:], a.Seed[:])
	copy(b[40:], a.Root[:])
	return b
}

// Sign signs the answer.
func (a Answer) Sign(d sign.Domain, s sign.Signer) (sign.Signature, error) {
	b := a.Marshal()
	return s.Sign(d.Preimage(sign.TagProbed, b[:]))
}

// Verify checks the provider's signature.
func (a Answer) Verify(d sign.Domain, provider sign.Key, sig sign.Signature) error {
	b := a.Marshal()
	return sign.Verify(provider, d.Preimage(sign.TagProbed, b[:]), sig)
}

// Opened is a provider's word for the entries that were drawn after its answer. Tag "starling:opened"; layout:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     7  reserved: 0
//	     8    32  SHA-256( "starling/probed/v1" ‖ answer )
//	    40    16  second nonce
//	    56    32  SHA-256 of the openings (challenge.Opened)
type Opened struct {
	Answer   sign.Hash
	Nonce    Nonce
	Openings sign.Hash
}

// Open is the statement over openings.
func Open(a Answer, draw Nonce, openings []byte) Opened {
	return Opened{Answer: a.hash(), Nonce: draw, Openings: sign.Sum(openings)}
}

func (a Answer) hash() sign.Hash {
	b := a.Marshal()
	return sign.Sum([]byte("starling/probed/v1"), b[:])
}

// Marshal returns the layout.
func (o Opened) Marshal() [OpenedSize]byte {
	var b [OpenedSize]byte
	b[0] = version
	copy(b[8:], o.Answer[:])
	copy(b[40:], o.Nonce[:])
	copy(b[56:], o.Openings[:])
	return b
}

// Sign signs the statement.
func (o Opened) Sign(d sign.Domain, s sign.Signer) (sign.Signature, error) {
	b := o.Marshal()
	return s.Sign(d.Preimage(sign.TagOpened, b[:]))
}

// Verify checks the provider's signature.
func (o Opened) Verify(d sign.Domain, provider sign.Key, sig sign.Signature) error {
	b := o.Marshal()
	return sign.Verify(provider, d.Preimage(sign.TagOpened, b[:]), sig)
}

// hash identifies the openings in the buyer's measure.
func (o Opened) hash() sign.Hash {
	b := o.Marshal()
	return sign.Sum([]byte("starling/opened/v1"), b[:])
}

// Measured is the buyer's statement of an answer's duration. Tag "starling:measure"; layout:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     7  reserved: 0
//	     8    32  SHA-256( "starling/opened/v1" ‖ opened )
//	    40     8  nanoseconds from the question to the answer
//	    48     8  nanoseconds of the fastest round trip around it
//	    56     8  operations a second that the units have proven or shown before; 0: unknown
type Measured struct {
	Opened  sign.Hash
	Elapsed time.Duration
	Trip    time.Duration
	Known   uint64
}

// Marshal returns the layout.
func (m Measured) Marshal() [MeasuredSize]byte {
	var b [MeasuredSize]byte
	b[0] = version
	copy(b[8:], m.Opened[:])
	binary.LittleEndian.PutUint64(b[40:], uint64(m.Elapsed))
	binary.LittleEndian.PutUint64(b[48:], uint64(m.Trip))
	binary.LittleEndian.PutUint64(b[56:], m.Known)
	return b
}

// Sign signs the measure as the lease's buyer.
func (m Measured) Sign(d sign.Domain, s sign.Signer) (sign.Signature, error) {
	b := m.Marshal()
	return s.Sign(d.Preimage(sign.TagMeasured, b[:]))
}

// Verify checks the buyer's signature.
func (m Measured) Verify(d sign.Domain, buyer sign.Key, sig sign.Signature) error {
	b := m.Marshal()
	return sign.Verify(buyer, d.Preimage(sign.TagMeasured, b[:]), sig)
}

// Draw returns the leaves of an answer to open, ascending, and the value of each that the buyer computes again. The
// nonce must not exist before the answer.
func Draw(a Answer, draw Nonce, s challenge.Shape) (leaves []uint32, pick func(i int) int) {
	h := a.hash()
	randomness := sign.Sum([]byte("starling/probe/draw/v1"), h[:], draw[:])
	picks := sign.Sum([]byte("starling/probe/pick/v1"), randomness[:])
	return challenge.Draw(randomness, s.Leaves(), Openings), func(i int) int {
		return int(picks[i%len(picks)]) % challenge.LeafWords
	}
}

// CheckOpened parses openings and checks the drawn entries. It returns ErrMalformed, or ErrWrong if they do not match
// the answer or the product.
func CheckOpened(q Question, a Answer, draw Nonce, openings []byte) error {
	o, rest, err := challenge.UnmarshalOpened(openings)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	if len(rest) != 0 {
		return fmt.Errorf("%w: %d bytes after the openings", ErrWrong, len(rest))
	}
	leaves, pick := Draw(a, draw, q.Shape)
	if err := o.Check(q.Seed(), q.Shape, a.Root, leaves, pick); err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	return nil
}

func zero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
