package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/link"
)

// Sidecar is the peer's view of the container that holds the network of an execution with an overlay: the only one with
// a capability, with no program in it but the guard.
type Sidecar struct {
	ID   string // the engine's, of its container
	conn *guard.Conn

	asking  sync.Mutex // one question at a time
	nextID  uint32
	answers chan link.Answer // unasked ones are dropped
	over    chan struct{}    // closed when its guard, or this peer, is gone
}

func newSidecar(container string, conn *guard.Conn) *Sidecar {
	return &Sidecar{ID: container, conn: conn, answers: make(chan link.Answer, 1), over: make(chan struct{})}
}

// Watch reads the sidecar's messages until its connection ends.
func (s *Sidecar) Watch() {
	defer close(s.over)
	for {
		b, files, err := s.conn.Receive()
		if err != nil {
			return
		}
		a, err := guard.DecodeAnswer(b)
		if err != nil {
			guard.CloseFiles(files)
			continue
		}
		select {
		case s.answers <- link.Answer{Answer: a, Files: files}:
		default:
			guard.CloseFiles(files)
		}
	}
}

// Ask sends a request and returns its answer.
func (s *Sidecar) Ask(ctx context.Context, req guard.NetRequest) (link.Answer, error) {
	s.asking.Lock()
	defer s.asking.Unlock()
	select {
	case stale := <-s.answers: // to a question that was given up
		guard.CloseFiles(stale.Files)
	default:
	}
	s.nextID++
	req.ID = s.nextID
	if err := s.conn.Send(req); err != nil {
		return link.Answer{}, fmt.Errorf("%w: requesting the network: %w", runtime.ErrEnded, err)
	}
	for {
		select {
		case a := <-s.answers:
			if a.ID == req.ID && a.Error == "" {
				return a, nil
			}
			guard.CloseFiles(a.Files)
			if a.ID == req.ID {
				return link.Answer{}, errors.New(a.Error)
			}
		case <-s.over:
			return link.Answer{}, runtime.ErrEnded
		case <-ctx.Done():
			return link.Answer{}, ctx.Err()
		}
	}
}

// End ends a sidecar that is no longer needed.
func (s *Sidecar) End() {
	_ = s.conn.Send(guard.NetRequest{Op: guard.NetEnd})
}

// Close closes the connection: the sidecar waits for another peer for its grace.
func (s *Sidecar) Close() error { return s.conn.Close() }

// Pid returns the sidecar's process.
func (s *Sidecar) Pid() (int, error) { return s.conn.Pid() }
