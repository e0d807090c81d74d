package exclusive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// MaxOpenings bounds the layout of 16 openings: their paths in a tree of 2²⁵ leaves, which share the nodes of the top
// levels.
const MaxOpenings = 2 + Openings*132 + 2 + Openings*22*sign.HashSize

const recordHead = 1 + 7 + market.LeaseSize + QuestionSize + 3*sign.SignatureSize + sign.HashSize + NonceSize + 24 +
	sign.SignatureSize + 4

// MaxRecord bounds a record, bytes.
const MaxRecord = recordHead + MaxOpenings

// Record is one probe with everything that its check needs. Layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     7  reserved: 0
//	     8   424  lease (market.Lease)
//	   432    96  question
//	   528    64  the buyer's signature under it
//	   592    32  root of the answer
//	   624    64  the provider's signature under the answer
//	   688    16  second nonce
//	   704    64  the provider's signature under its openings
//	   768     8  nanoseconds from the question to the answer
//	   776     8  nanoseconds of the fastest round trip around it
//	   784     8  operations a second that were known
//	   792    64  the buyer's signature under the measure
//	   856     4  n, at most 13 380
//	   860     n  openings (challenge.Opened), as the provider sent them
type Record struct {
	Lease       market.Lease
	Question    Question
	QuestionSig sign.Signature // of the buyer
	Root        sign.Hash
	AnswerSig   sign.Signature // of the provider
	Draw        Nonce
	OpenedSig   sign.Signature // of the provider
	Elapsed     time.Duration
	Trip        time.Duration
	Known       uint64
	MeasuredSig sign.Signature // of the buyer
	Openings    []byte
}

// Answer is the provider's answer.
func (r Record) Answer() Answer { return Answer{Seed: r.Question.Seed(), Root: r.Root} }

// Opened is the provider's openings.
func (r Record) Opened() Opened { return Open(r.Answer(), r.Draw, r.Openings) }

// Measured is the buyer's measurement.
func (r Record) Measured() Measured {
	return Measured{Opened: r.Opened().hash(), Elapsed: r.Elapsed, Trip: r.Trip, Known: r.Known}
}

// Observation is how fast the provider was, by the buyer's word.
func (r Record) Observation() Observation { return Observe(r.Question.Shape, r.Elapsed, r.Trip) }

// Marshal returns the layout.
func (r Record) Marshal() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, recordHead+len(r.Openings)), version, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, r.Lease.Marshal()...)
	q := r.Question.Marshal()
	b = append(b, q[:]...)
	b = append(b, r.QuestionSig[:]...)
	b = append(b, r.Root[:]...)
	b = append(b, r.AnswerSig[:]...)
	b = append(b, r.Draw[:]...)
	b = append(b, r.OpenedSig[:]...)
	b = le.AppendUint64(b, uint64(r.Elapsed))
	b = le.AppendUint64(b, uint64(r.Trip))
	b = le.AppendUint64(b, r.Known)
	b = append(b, r.MeasuredSig[:]...)
	b = le.AppendUint32(b, uint32(len(r.Openings)))
	return append(b, r.Openings...)
}

// UnmarshalRecord decodes the layout without trailing bytes. It does not verify; Check does.
func UnmarshalRecord(b []byte) (Record, error) {
	if len(b) < recordHead || len(b) > MaxRecord || b[0] != version || !zero(b[1:8]) {
		return Record{}, malformed("probe record", "%d bytes, or unknown version or reserved bytes", len(b))
	}
	lease, err := market.UnmarshalLease(b[8 : 8+market.LeaseSize])
	if err != nil {
		return Record{}, err
	}
	b = b[8+market.LeaseSize:]
	q, err := UnmarshalQuestion(b[:QuestionSize])
	if err != nil {
		return Record{}, err
	}
	b = b[QuestionSize:]
	le := binary.LittleEndian
	r := Record{Lease: lease, Question: q, QuestionSig: sign.Signature(b[:64]), Root: sign.Hash(b[64:96]),
		AnswerSig: sign.Signature(b[96:160]), Draw: Nonce(b[160:176]), OpenedSig: sign.Signature(b[176:240]),
		Known: le.Uint64(b[256:]), MeasuredSig: sign.Signature(b[264:328])}
	elapsed, trip := le.Uint64(b[240:]), le.Uint64(b[248:])
	if elapsed > math.MaxInt64 || trip > math.MaxInt64 {
		return Record{}, malformed("probe record", "a time of more than 2⁶³ ns")
	}
	r.Elapsed, r.Trip = time.Duration(elapsed), time.Duration(trip)
	if n := le.Uint32(b[328:]); uint64(n) != uint64(len(b)-332) {
		return Record{}, malformed("probe record", "openings: length %d, got %d bytes", n, len(b)-332)
	}
	r.Openings = append([]byte{}, b[332:]...)
	return r, nil
}

// Hash names the record.
func (r Record) Hash() sign.Hash { return sign.Sum([]byte("starling/probe-record/v1"), r.Marshal()) }

// Check verifies a record offline. It returns nil if the provider of the lease gave the right answer to a question of
// its buyer, ErrWrong if it signed a wrong one, and ErrRecord if the record proves nothing. The buyer's measured times
// cannot be checked.
func (r Record) Check(d sign.Domain) error {
	if err := r.Lease.Check(d); err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	core := r.Lease.Core
	if err := r.Question.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if r.Question.Lease != core.ID() {
		return record("question: of another lease")
	}
	if uint64(r.Question.Unit) >= uint64(core.Units) {
		return record("question: of unit %d of %d", r.Question.Unit, core.Units)
	}
	for _, s := range []struct {
		what string
		err  error
	}{
		{"the question", r.Question.Verify(d, core.Buyer, r.QuestionSig)},
		{"the answer", r.Answer().Verify(d, core.Provider, r.AnswerSig)},
		{"opened entries", r.Opened().Verify(d, core.Provider, r.OpenedSig)},
		{"the measure", r.Measured().Verify(d, core.Buyer, r.MeasuredSig)},
	} {
		if s.err != nil {
			return fmt.Errorf("%w: %s: %w", ErrRecord, s.what, s.err)
		}
	}
	if r.Elapsed <= 0 || r.Trip < 0 {
		return record("an answer in %v, a round trip of %v", r.Elapsed, r.Trip)
	}
	return CheckOpened(r.Question, r.Answer(), r.Draw, r.Openings)
}

// Wrong reports whether err is about a wrong answer.
func Wrong(err error) bool { return errors.Is(err, ErrWrong) }
