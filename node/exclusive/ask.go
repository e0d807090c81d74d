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

// Buyer is a buyer's side of one probe.
type Buyer struct {
	Domain sign.Domain
	Key    sign.Signer
	Lease  market.Lease
	Known  uint64 // operations a second, for the record
}

// Ask has a question answered and returns the record. Its nonce is drawn here. An error that is rules.ErrWrong comes with the record
// that shows it; any other without, and says nothing of the hardware. Closing the stream ends it.
func (b Buyer) Ask(conn io.ReadWriter, q rules.Question) (rules.Record, error) {
	_, _ = rand.Read(q.Nonce[:])
	r := rules.Record{Lease: b.Lease, Question: q, Known: b.Known, Trip: math.MaxInt64}
	var err error
	if r.QuestionSig, err = q.Sign(b.Domain, b.Key); err != nil {
		return r, err
	}
	if r.Trip, err = fastest(conn, r.Trip); err != nil {
		return r, err
	}
	provider := b.Lease.Core.Provider
	layout := q.Marshal()
	var reply [sign.HashSize + sign.SignatureSize]byte
	begun := time.Now()
	if err := exchange(conn, append(append([]byte{ask}, layout[:]...), r.QuestionSig[:]...), reply[:]); err != nil {
		return r, fmt.Errorf("asking: %w", err)
	}
	r.Elapsed = max(time.Since(begun), 1)
	r.Root, r.AnswerSig = sign.Hash(reply[:sign.HashSize]), sign.Signature(reply[sign.HashSize:])
	if err := r.Answer().Verify(b.Domain, provider, r.AnswerSig); err != nil {
		return r, fmt.Errorf("%w: the answer's signature: %w", ErrProtocol, err)
	}
	if r.Trip, err = fastest(conn, r.Trip); err != nil {
		return r, err
	}
	_, _ = rand.Read(r.Draw[:])
	var head [sign.SignatureSize + 4]byte
	if err := exchange(conn, append([]byte{draw}, r.Draw[:]...), head[:]); err != nil {
		return r, fmt.Errorf("drawing: %w", err)
	}
	n := binary.LittleEndian.Uint32(head[sign.SignatureSize:])
	if n > rules.MaxOpenings {
		return r, fmt.Errorf("%w: openings of %d bytes", ErrProtocol, n)
	}
	r.OpenedSig, r.Openings = sign.Signature(head[:sign.SignatureSize]), make([]byte, n)
	if _, err := io.ReadFull(conn, r.Openings); err != nil {
		return r, fmt.Errorf("reading openings: %w", err)
	}
	if err := r.Opened().Verify(b.Domain, provider, r.OpenedSig); err != nil {
		return r, fmt.Errorf("%w: the signature under what was opened: %w", ErrProtocol, err)
	}
	if r.MeasuredSig, err = r.Measured().Sign(b.Domain, b.Key); err != nil {
		return r, err
	}
	return r, rules.CheckOpened(r.Question, r.Answer(), r.Draw, r.Openings)
}

// fastest times round trips, and keeps the fastest with what it has.
func fastest(conn io.ReadWriter, so time.Duration) (time.Duration, error) {
	for range trips {
		var there, back [pingSize]byte
		_, _ = rand.Read(there[:])
		begun := time.Now()
		if err := exchange(conn, append([]byte{ping}, there[:]...), back[:]); err != nil {
			return so, fmt.Errorf("pinging: %w", err)
		}
		if !bytes.Equal(there[:], back[:]) {
			return so, fmt.Errorf("%w: another ping's answer", ErrProtocol)
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
