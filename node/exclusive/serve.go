package exclusive

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/verify/challenge"
	rules "github.com/starling-network/starling/verify/exclusive"
)

// The kinds of a buyer's messages.
const (
	ping = 'p'
	ask  = 'q'
	draw = 'd'
)

// The kinds of a provider's answers to a question.
const (
	answered = 'r'
	noMemory = 'm'
)

// CodeMemory is how a provider refuses to ready a probe on devices that have no memory left for it.
const CodeMemory = "memory"

// ErrMemory means that a device had no memory left for a product: the buyer's own program uses it. It is no fault of
// the provider.
var ErrMemory = errors.New("device memory is full: a probe has no room beside the program")

const (
	pingSize = 8
	// maxPings is how many a provider answers on one stream.
	maxPings = 16
)

// ErrProtocol means that the other side does not keep to the conversation.
var ErrProtocol = errors.New("message breaks the protocol of probes")

// Seller is a provider's side of one probe.
type Seller struct {
	Domain    sign.Domain
	Key       sign.Signer
	Buyer     sign.Key // signs the questions
	Lease     market.LeaseID
	Execution uint64
	Gauge     runtime.Gauge
}

// KindOf returns the kind of hardware that a gauge computes with.
func KindOf(g runtime.Gauge) rules.Kind {
	if g.GPU() {
		return rules.GPU
	}
	return rules.CPU
}

// Serve answers on a stream until the buyer has its answers, or closes it. Ending ctx ends the computing, not the
// reading.
func (s Seller) Serve(ctx context.Context, conn io.ReadWriter) error {
	var done []computed
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
		case kind[0] == ask && done == nil:
			var err error
			if done, err = s.answer(ctx, conn); err != nil {
				return err
			}
		case kind[0] == draw && done != nil:
			return s.open(conn, done)
		default:
			return fmt.Errorf("%w: %q", ErrProtocol, kind[:])
		}
	}
}

// computed is one device's product.
type computed struct {
	question   rules.Question
	commitment *challenge.Commitment
}

func echo(conn io.ReadWriter) error {
	var b [pingSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return err
	}
	_, err := conn.Write(b[:])
	return err
}

// answer has every device compute its question, all at once, and signs for each.
func (s Seller) answer(ctx context.Context, conn io.ReadWriter) ([]computed, error) {
	done := make([]computed, s.Gauge.Devices())
	seeds := make([]sign.Hash, len(done))
	for i := range done {
		var b [rules.QuestionSize + sign.SignatureSize]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return nil, err
		}
		q, err := rules.UnmarshalQuestion(b[:rules.QuestionSize])
		if err != nil {
			return nil, err
		}
		if q.Lease != s.Lease || q.Execution != s.Execution || q.Kind() != KindOf(s.Gauge) || int(q.Unit) != i ||
			q.Shape != done[0].question.Shape && i > 0 {
			return nil, fmt.Errorf("%w: a question about another execution or for other hardware", ErrProtocol)
		}
		if err := q.Verify(s.Domain, s.Buyer, sign.Signature(b[rules.QuestionSize:])); err != nil {
			return nil, err
		}
		done[i].question, seeds[i] = q, q.Seed()
	}
	var mu sync.Mutex // one answer is written at a time
	err := s.Gauge.Multiply(ctx, seeds, done[0].question.Shape, func(i int, tiles []sign.Hash) error {
		c, err := challenge.Commit(done[i].question.Shape, tiles)
		if err != nil {
			return err
		}
		a := rules.Answer{Seed: seeds[i], Root: c.Root()}
		sig, err := a.Sign(s.Domain, s.Key)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		done[i].commitment = c
		_, err = conn.Write(append(append([]byte{answered, byte(i)}, a.Root[:]...), sig[:]...))
		return err
	})
	if errors.Is(err, device.ErrMemory) {
		_, _ = conn.Write([]byte{noMemory}) // the error is returned
	}
	return done, err
}

// open shows the drawn entries of each. It signs only entries that it has verified.
func (s Seller) open(conn io.ReadWriter, done []computed) error {
	var nonce rules.Nonce
	if _, err := io.ReadFull(conn, nonce[:]); err != nil {
		return err
	}
	for _, d := range done {
		a := rules.Answer{Seed: d.question.Seed(), Root: d.commitment.Root()}
		leaves, _ := rules.Draw(a, nonce, d.question.Shape)
		o, err := d.commitment.Open(a.Seed, leaves)
		if err != nil {
			return err
		}
		openings := o.Marshal()
		if err := rules.CheckOpened(d.question, a, nonce, openings); err != nil {
			return fmt.Errorf("%w: %w", challenge.ErrFault, err)
		}
		sig, err := rules.Open(a, nonce, openings).Sign(s.Domain, s.Key)
		if err != nil {
			return err
		}
		head := binary.LittleEndian.AppendUint32(sig[:], uint32(len(openings)))
		if _, err = conn.Write(append(head, openings...)); err != nil {
			return err
		}
	}
	return nil
}
