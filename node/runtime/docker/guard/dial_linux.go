package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// answerPatience is how long the peer has to take the last answers of a program that has ended. A caller that reads
// nothing must not keep the container.
const answerPatience = 2 * time.Second

// dialled is a connection to the program, open or in progress.
type dialled struct {
	near   *net.UnixConn
	conn   *net.TCPConn // nil until it is made
	over   bool         // the peer has closed it, or is gone
	giveUp func()       // ends the attempt to make it
}

// hangUp stops reading from the connection, since its reader is gone. The peer's data is still forwarded. The guard's
// mu is held.
func (d *dialled) hangUp() {
	d.giveUp()
	if d.over = true; d.conn != nil {
		_ = d.conn.CloseRead()
	}
}

// dial connects a socket of the peer's to a port of the program. The files are its own.
func (g *guard) dial(conn *Conn, req Request, files []*os.File) {
	near, err := socketOf(files)
	if err != nil {
		_ = conn.Send(Answer{ID: req.ID, Error: err.Error()})
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over || len(g.dialled) >= MaxDialled {
		_ = near.Close()
		why := fmt.Sprintf("%d connections are open already", MaxDialled)
		if g.over {
			why = "the program has ended"
		}
		_ = conn.Send(Answer{ID: req.ID, Error: why})
		return
	}
	ctx, giveUp := context.WithCancel(context.Background())
	d := &dialled{near: near, giveUp: giveUp}
	g.dialled[d] = req.ID
	g.copies.Go(func() {
		far, err := g.dialOwn(ctx, req.Port)
		giveUp()
		if err != nil {
			g.forget(d)
			_ = near.Close()
			_ = conn.Send(Answer{ID: req.ID, Error: err.Error()})
			return
		}
		g.mu.Lock()
		d.conn = far
		if d.over {
			d.hangUp()
		}
		g.mu.Unlock()
		_ = conn.Send(Answer{ID: req.ID})
		answered := make(chan struct{})
		go func() {
			pass(far, near)
			<-answered
			g.forget(d)
			_ = far.Close()
			_ = near.Close()
		}()
		pass(near, far)
		close(answered)
	})
}

// lastAnswers gives the peer a while to read the rest of the program's output before its end.
func (g *guard) lastAnswers() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for d := range g.dialled {
		_ = d.near.SetWriteDeadline(time.Now().Add(answerPatience))
	}
}

// giveUp ends the attempts to connect to a program that has ended. The kernel would retry for minutes.
func giveUp(all map[*dialled]uint32) {
	for d := range all {
		d.giveUp()
	}
}

func (g *guard) forget(d *dialled) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.dialled, d)
}

// half is a connection with halves that can be closed one by one.
type half interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
}

// pass copies until the source ends or the destination fails, and closes both halves.
func pass(to, from half) {
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
	_ = from.CloseRead()
}

// socketOf makes a connection of the one socket among files, and closes them.
func socketOf(files []*os.File) (*net.UnixConn, error) {
	defer CloseFiles(files)
	if len(files) != 1 {
		return nil, fmt.Errorf("%d descriptors, wanted a socket", len(files))
	}
	c, err := net.FileConn(files[0])
	if err != nil {
		return nil, fmt.Errorf("opening a socket of the peer: %w", err)
	}
	s, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("opening a socket of the peer: got a %T", c)
	}
	return s, nil
}

// dialOwn connects to a port at the loopback address and, if refused, at the overlay's address.
func (g *guard) dialOwn(ctx context.Context, port uint16) (*net.TCPConn, error) {
	c, err := dialPort(ctx, netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	if a := g.order.Overlay; a.Is4() && errors.Is(err, unix.ECONNREFUSED) {
		c, err = dialPort(ctx, a, port)
	}
	return c, err
}

func dialPort(ctx context.Context, to netip.Addr, port uint16) (*net.TCPConn, error) {
	c, err := new(net.Dialer).DialTCP(ctx, "tcp4", netip.AddrPort{}, netip.AddrPortFrom(to, port))
	var why unix.Errno
	if errors.As(err, &why) {
		err = why
	}
	if err != nil {
		return nil, fmt.Errorf("port %d: %w", port, err)
	}
	return c, nil
}
