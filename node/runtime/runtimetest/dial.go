package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

// Dial reaches a program that listens through its Process.
func (f *Fake) Dial(ctx context.Context, h runtime.Handle, port uint16) (net.Conn, error) {
	e, err := f.running(h)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	incoming := e.ports[port]
	e.mu.Unlock()
	if incoming == nil {
		return nil, fmt.Errorf("dialling port %d: %w", port, syscall.ECONNREFUSED)
	}
	ours, theirs := pipe()
	select {
	case incoming <- theirs:
		return ours, nil
	case <-e.over:
		return nil, runtime.ErrEnded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// duplex is one end of a connection in memory with directions that end one by one, as those of a socket do.
type duplex struct {
	net.Conn          // to read from, and for its deadlines and addresses
	to       net.Conn // to write to
}

func pipe() (a, b net.Conn) {
	there, thereEnd := net.Pipe()
	back, backEnd := net.Pipe()
	return &duplex{back, there}, &duplex{thereEnd, backEnd}
}

func (d *duplex) Write(b []byte) (int, error) { return d.to.Write(b) }

func (d *duplex) CloseWrite() error { return d.to.Close() }

func (d *duplex) Close() error { return errors.Join(d.Conn.Close(), d.to.Close()) }

func (d *duplex) SetWriteDeadline(t time.Time) error { return d.to.SetWriteDeadline(t) }

func (d *duplex) SetDeadline(t time.Time) error {
	return errors.Join(d.Conn.SetReadDeadline(t), d.to.SetWriteDeadline(t))
}
