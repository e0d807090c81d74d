// Package sshserver is an SSH server for one connection, on the user's own computer. The system's ssh connects to it
// over standard input and output (ProxyCommand). It maps the connection onto the authenticated streams of one rank of a
// job:
//
//	session with exec or shell    a program beside the rank's own, as of starling exec
//	subsystem sftp                the server of node/runtime/sftpd as such a program
//	direct-tcpip (ssh -L, -D)     a port on the loopback of the rank's program
//
// It opens no port and asks for no key: its caller has the streams already. It refuses remote forwarding, forwarding of
// agents and X11.
package sshserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/starling-network/starling/node/live"
)

// MaxChannels bounds the open channels of a connection; a provider attaches as many programs to a rank.
const MaxChannels = 64

// Programs is the access to one rank of a job. Its streams end with ctx.
type Programs interface {
	// Attach runs a program beside the rank's own. The stream has the frames of node/live.
	Attach(ctx context.Context, p live.Program) (live.Conn, error)
	// Forward connects to a port on the loopback of the rank's program.
	Forward(ctx context.Context, port uint16) (live.Conn, error)
}

// Config is the configuration of a server. HostKey and Programs are required.
type Config struct {
	HostKey  ssh.Signer
	Programs Programs
	// Explain returns the text of an error for the user. It is optional; if nil, it is Error.
	Explain func(error) string
}

// Serve serves one connection. It returns after all its programs, when the connection or ctx ends. It closes out. A
// pending Read of in may remain.
func Serve(ctx context.Context, in io.Reader, out io.WriteCloser, c Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn := newStdio(in, out)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	cfg := &ssh.ServerConfig{NoClientAuth: true, ServerVersion: "SSH-2.0-Starling"}
	cfg.AddHostKey(c.HostKey)
	sc, channels, requests, err := ssh.NewServerConn(conn, cfg)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("ssh handshake: %w", err)
	}
	if c.Explain == nil {
		c.Explain = error.Error
	}
	s := &server{Config: c, places: make(chan struct{}, MaxChannels)}
	s.wg.Go(func() { ssh.DiscardRequests(requests) })
	for n := range channels {
		s.open(ctx, n)
	}
	err = sc.Wait()
	cancel()
	s.wg.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || disconnected(err) {
		err = nil
	}
	return err
}

// disconnected reports whether a client has announced that it disconnects, as at its end (RFC 4253, section 11.1). The
// library's error has no exported type.
func disconnected(err error) bool {
	const byApplication = "ssh: disconnect, reason 11:"
	return err != nil && strings.HasPrefix(err.Error(), byApplication)
}

type server struct {
	Config
	places chan struct{} // has an element for each open channel
	wg     sync.WaitGroup
}

// open serves a new channel, or rejects it. It does not wait: the connection's other channels would wait too.
func (s *server) open(ctx context.Context, n ssh.NewChannel) {
	var serve func(context.Context, ssh.NewChannel)
	switch n.ChannelType() {
	case "session":
		serve = s.session
	case "direct-tcpip":
		serve = s.forward
	default:
		_ = n.Reject(ssh.UnknownChannelType, fmt.Sprintf("a job has no channel %.40q", n.ChannelType()))
		return
	}
	select {
	case s.places <- struct{}{}:
	default:
		_ = n.Reject(ssh.ResourceShortage, fmt.Sprintf("%d channels are open already", MaxChannels))
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.places }()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		serve(ctx, n)
	})
}

// forward connects a channel with a port of the job's program.
func (s *server) forward(ctx context.Context, n ssh.NewChannel) {
	var to struct { // RFC 4254, section 7.2
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(n.ExtraData(), &to); err != nil || to.Port == 0 || to.Port > 1<<16-1 {
		_ = n.Reject(ssh.ConnectionFailed, "malformed request")
		return
	}
	if !loopback(to.Host) {
		_ = n.Reject(ssh.Prohibited, fmt.Sprintf("%.80q: a job forwards only ports of its own localhost", to.Host))
		return
	}
	conn, err := s.Programs.Forward(ctx, uint16(to.Port))
	if err != nil {
		_ = n.Reject(ssh.ConnectionFailed, s.Explain(err))
		return
	}
	ch, requests, err := n.Accept()
	if err != nil {
		_ = conn.Close()
		return
	}
	s.wg.Go(func() { ssh.DiscardRequests(requests) })
	_ = live.Splice(ctx, ch, conn) // its user sees the end of the connection
}
