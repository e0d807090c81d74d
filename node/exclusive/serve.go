package exclusive

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/verify/challenge"
	rules "github.com/starling-network/starling/verify/exclusive"
)

// The kinds of what a buyer sends.
const (
	ping = 'p'
	ask  = 'q'
	draw = 'd'
)

const (
	pingSize = 8
	// maxPings is how many a provider answers on one stream.
	maxPings = 16
)

// ErrProtocol says that the other side does not keep to the conversation.
var ErrProtocol = errors.New("not what a probe says")

// Seller is a provider's side of one probe.
type Seller struct {
	Domain    sign.Domain
	Key       sign.Signer
	Buyer     sign.Key // who signs questions
	Lease     market.LeaseID
	Execution uint64
	Gauge     runtime.Gauge
}

// Serve answers on a stream until the buyer has what it asked for, or closes it. Ending ctx ends the computing, not the reading.
func (s Seller) Serve(ctx context.Context, conn io.ReadWriter) error {
	var q *rules.Question
	var committed *challenge.Commitment
	for pings := 0; ; {
		var kind [1]byte
		if _, err := io.ReadFull(conn, kind[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		switch {
		case kind[0] == ping && pings < maxPings:
			pings++
			if err := echo(conn); err != nil {
				return err
			}
		case kind[0] == ask && q == nil:
			var err error
			if q, committed, err = s.answer(ctx, conn); err != nil {
				return err
			}
		case kind[0] == draw && q != nil:
			return s.open(conn, *q, committed)
		default:
			return fmt.Errorf("%w: %q", ErrProtocol, kind[:])
		}
	}
}

func echo(conn io.ReadWriter) error {
	var b [pingSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return err
	}
	_, err := conn.Write(b[:])
	return err
}

// answer computes what is asked and signs for it.
func (s Seller) answer(ctx context.Context, conn io.ReadWriter) (*rules.Question, *challenge.Commitment, error) {
	var b [rules.QuestionSize + sign.SignatureSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return nil, nil, err
	}
	q, err := rules.UnmarshalQuestion(b[:rules.QuestionSize])
	if err != nil {
		return nil, nil, err
	}
	if q.Lease != s.Lease || q.Execution != s.Execution || q.Kind() != s.Gauge.Kind() {
		return nil, nil, fmt.Errorf("%w: a question about another execution or for other hardware", ErrProtocol)
	}
	if err := q.Verify(s.Domain, s.Buyer, sign.Signature(b[rules.QuestionSize:])); err != nil {
		return nil, nil, err
	}
	tiles, err := s.Gauge.Multiply(ctx, q.Seed(), q.Shape)
	if err != nil {
		return nil, nil, err
	}
	c, err := challenge.Commit(q.Shape, tiles)
	if err != nil {
		return nil, nil, err
	}
	a := rules.Answer{Seed: q.Seed(), Root: c.Root()}
	sig, err := a.Sign(s.Domain, s.Key)
	if err != nil {
		return nil, nil, err
	}
	_, err = conn.Write(append(a.Root[:], sig[:]...))
	return &q, c, err
}

// open shows what is drawn. It signs for nothing that it has not found right.
func (s Seller) open(conn io.ReadWriter, q rules.Question, c *challenge.Commitment) error {
	var nonce rules.Nonce
	if _, err := io.ReadFull(conn, nonce[:]); err != nil {
		return err
	}
	a := rules.Answer{Seed: q.Seed(), Root: c.Root()}
	leaves, _ := rules.Draw(a, nonce, q.Shape)
	o, err := c.Open(a.Seed, leaves)
	if err != nil {
		return err
	}
	openings := o.Marshal()
	if err := rules.CheckOpened(q, a, nonce, openings); err != nil {
		return fmt.Errorf("%w: %w", challenge.ErrFault, err)
	}
	sig, err := rules.Open(a, nonce, openings).Sign(s.Domain, s.Key)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.LittleEndian.AppendUint32(sig[:], uint32(len(openings))), openings...))
	return err
}
