package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

// Line is the peer's end of the connection to a guard: its requests, and the answers to them.
type Line struct {
	over, gone <-chan struct{}

	mu      sync.Mutex
	conn    *guard.Conn // nil: there is no guard
	closed  bool
	nextID  uint32
	pending map[uint32]*call // by ID of the request
}

// Answer is a guard's answer, with the files that came with it.
type Answer struct {
	guard.Answer
	Files []*os.File
}

// call waits for the answers to one request.
type call struct {
	answers chan Answer // room for all there can be: one, or two of an attached program
	closed  bool
}

// New returns a line without a guard. over is closed when the execution has ended, gone when the peer gave it up.
func New(over, gone <-chan struct{}) *Line {
	return &Line{over: over, gone: gone, pending: map[uint32]*call{}}
}

// Connect makes conn the connection to the guard. The line closes it.
func (l *Line) Connect(conn *guard.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
}

// Connected reports whether there is a guard, or was until its connection ended.
func (l *Line) Connected() bool { return l.connection() != nil }

func (l *Line) connection() *guard.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// Disconnect closes the connection and forgets the guard.
func (l *Line) Disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// Close closes the connection, and lets the guard know by this that its peer is gone. Later requests are
// runtime.ErrClosed.
func (l *Line) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// Greet sends the first request to the guard and returns its first answer.
func (l *Line) Greet(ctx context.Context, req guard.Request, files ...*os.File) (guard.Answer, error) {
	return Greet(ctx, l.connection(), req, files...)
}

// Watch reads the guard's messages until it is gone. ending is called when the guard reports that it kills every
// process.
func (l *Line) Watch(ending func()) {
	for conn := l.connection(); conn != nil; {
		b, files, err := conn.Receive()
		if err != nil {
			break
		}
		if a, err := guard.DecodeAnswer(b); err != nil {
			guard.CloseFiles(files)
		} else if a.Ending {
			guard.CloseFiles(files)
			ending()
		} else {
			l.deliver(Answer{a, files})
		}
	}
}

func (l *Line) deliver(a Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.pending[a.ID]
	if c == nil || c.closed {
		guard.CloseFiles(a.Files)
		return
	}
	select {
	case c.answers <- a:
	default: // more than there can be
		guard.CloseFiles(a.Files)
	}
}

// Release wakes all callers that wait for an answer that will not come.
func (l *Line) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.pending {
		if !c.closed {
			c.closed = true
			close(c.answers)
		}
	}
}

// Send sends the guard a request without an answer. The end of the connection shows that a guard is gone.
func (l *Line) Send(req guard.Request) {
	if conn := l.connection(); conn != nil {
		_ = conn.Send(req)
	}
}

// Begin sends a request and returns where its answers come. end must be called.
func (l *Line) Begin(
	req guard.Request, files ...*os.File,
) (answers <-chan Answer, id uint32, end func(), err error) {
	select {
	case <-l.over:
		return nil, 0, nil, runtime.ErrEnded
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.conn == nil {
		return nil, 0, nil, runtime.ErrClosed
	}
	l.nextID++
	req.ID = l.nextID
	c := &call{answers: make(chan Answer, 2)}
	if err := l.conn.Send(req, files...); err != nil {
		return nil, 0, nil, fmt.Errorf("%w: requesting from the guard: %w", runtime.ErrEnded, err)
	}
	l.pending[req.ID] = c
	return c.answers, req.ID, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.pending, req.ID)
		if !c.closed {
			c.closed = true
			close(c.answers)
		}
		for a := range c.answers {
			guard.CloseFiles(a.Files)
		}
	}, nil
}

// Next waits for an answer.
func (l *Line) Next(ctx context.Context, answers <-chan Answer) (Answer, error) {
	select {
	case a, ok := <-answers:
		if !ok {
			select {
			case <-l.gone:
				return Answer{}, runtime.ErrClosed
			default:
				return Answer{}, runtime.ErrEnded
			}
		}
		if a.Error != "" {
			guard.CloseFiles(a.Files)
			return Answer{}, errors.New(a.Error)
		}
		return a, nil
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}
