package exclusive

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	rules "github.com/starling-network/starling/verify/exclusive"
)

// trips is how many round trips are timed before the question, and after it.
const trips = 3

// MaxDevices is the number of devices in one probe: a question has one byte for its unit.
const MaxDevices = 256

// Buyer is a buyer's side of one probe.
type Buyer struct {
	Domain sign.Domain
	Key    sign.Signer
	Lease  market.Lease
	Known  uint64 // operations a second, for the record
}

// Probed is one device's answer. A wrong one stands against the provider.
type Probed struct {
	rules.Record
	Wrong error // rules.ErrWrong, nil for a right one
}

// Ask sends a question to a number of devices at once and returns a record for each. It draws the question's nonce and
// sets its unit. After an error there are no records, and the hardware is not judged; it returns ErrMemory if there was
// no free memory. Closing the stream ends it.
func (b Buyer) Ask(conn io.ReadWriter, q rules.Question, devices int) ([]Probed, error) {
	if devices < 1 || devices > MaxDevices {
		return nil, fmt.Errorf("%w: %d devices", ErrProtocol, devices)
	}
	out := make([]Probed, devices)
	say := []byte{ask}
	for i := range out {
		_, _ = rand.Read(q.Nonce[:])
		q.Unit = uint8(i)
		sig, err := q.Sign(b.Domain, b.Key)
		if err != nil {
			return nil, err
		}
		out[i].Record = rules.Record{Lease: b.Lease, Question: q, QuestionSig: sig, Known: b.Known}
		layout := q.Marshal()
		say = append(append(say, layout[:]...), sig[:]...)
	}
	trip, err := fastest(conn, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if _, err := conn.Write(say); err != nil {
		return nil, fmt.Errorf("asking: %w", err)
	}
	for range out {
		if err := b.answer(conn, out, begun); err != nil {
			return nil, err
		}
	}
	if trip, err = fastest(conn, trip); err != nil {
		return nil, err
	}
	var nonce rules.Nonce
	_, _ = rand.Read(nonce[:])
	if _, err := conn.Write(append([]byte{draw}, nonce[:]...)); err != nil {
		return nil, fmt.Errorf("drawing: %w", err)
	}
	for i := range out {
		r := &out[i].Record
		r.Trip, r.Draw = trip, nonce
		if err := b.opened(conn, r); err != nil {
			return nil, err
		}
		out[i].Wrong = rules.CheckOpened(r.Question, r.Answer(), r.Draw, r.Openings)
	}
	return out, nil
}

// answer reads one device's answer.
func (b Buyer) answer(conn io.Reader, out []Probed, begun time.Time) error {
	var head [2]byte
	if _, err := io.ReadFull(conn, head[:1]); err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	switch head[0] {
	case answered:
	case noMemory:
		return ErrMemory
	default:
		return fmt.Errorf("%w: %q instead of an answer", ErrProtocol, head[:1])
	}
	var reply [1 + sign.HashSize + sign.SignatureSize]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	i := int(reply[0])
	if i >= len(out) || out[i].Elapsed != 0 {
		return fmt.Errorf("%w: an answer of device %d", ErrProtocol, i)
	}
	r := &out[i].Record
	r.Elapsed = max(time.Since(begun), 1)
	r.Root, r.AnswerSig = sign.Hash(reply[1:1+sign.HashSize]), sign.Signature(reply[1+sign.HashSize:])
	if err := r.Answer().Verify(b.Domain, b.Lease.Core.Provider, r.AnswerSig); err != nil {
		return fmt.Errorf("%w: the answer's signature: %w", ErrProtocol, err)
	}
	return nil
}

// opened reads the openings of one device's answer, and signs the measure.
func (b Buyer) opened(conn io.Reader, r *rules.Record) error {
	var head [sign.SignatureSize + 4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	n := binary.LittleEndian.Uint32(head[sign.SignatureSize:])
	if n > rules.MaxOpenings {
		return fmt.Errorf("%w: openings of %d bytes", ErrProtocol, n)
	}
	r.OpenedSig, r.Openings = sign.Signature(head[:sign.SignatureSize]), make([]byte, n)
	if _, err := io.ReadFull(conn, r.Openings); err != nil {
		return fmt.Errorf("reading openings: %w", err)
	}
	if err := r.Opened().Verify(b.Domain, b.Lease.Core.Provider, r.OpenedSig); err != nil {
		return fmt.Errorf("%w: signature of the openings: %w", ErrProtocol, err)
	}
	var err error
	r.MeasuredSig, err = r.Measured().Sign(b.Domain, b.Key)
	return err
}

// fastest measures round trips and returns the shortest of them and so.
func fastest(conn io.ReadWriter, so time.Duration) (time.Duration, error) {
	for range trips {
		var there, back [pingSize]byte
		_, _ = rand.Read(there[:])
		begun := time.Now()
		if err := exchange(conn, append([]byte{ping}, there[:]...), back[:]); err != nil {
			return so, fmt.Errorf("pinging: %w", err)
		}
		if !bytes.Equal(there[:], back[:]) {
			return so, fmt.Errorf("%w: pong does not match the ping", ErrProtocol)
		}
		so = min(so, time.Since(begun))
	}
	return so, nil
}

func exchange(conn io.ReadWriter, say, hear []byte) error {
	if _, err := conn.Write(say); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, hear)
	return err
}
