package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/starling-network/starling/node/api"
)

// fileSocket is the unix socket of the API in the peer's home.
const fileSocket = "api.sock"

// maxSocket is the longest path of a unix socket on every system: 104 bytes with the zero at its end.
const maxSocket = 103

// door is a listener of the API, and the file that is removed when it closes.
type door struct {
	net.Listener
	socket string // path of the unix socket; empty over TCP
	dir    string // that was made for it; empty: the home
}

// open listens on addr, which must be a loopback address; if addr is empty, on a unix socket in home. Only the owner of
// home may connect to the socket. While no peer runs, no other user can listen in its place and receive jobs and the
// token.
func open(addr, home string) (d door, err error) {
	if addr != "" {
		if err := loopback(addr); err != nil {
			return d, fmt.Errorf("api: %w", err)
		}
		d.Listener, err = net.Listen("tcp", addr)
		return d, err
	}
	// The socket is created in a private directory, so that no other user can ever connect. It then replaces the socket
	// of a killed peer.
	within, err := os.MkdirTemp(home, ".api-")
	if err != nil {
		return d, err
	}
	made := filepath.Join(within, "s")
	if d.socket = filepath.Join(home, fileSocket); max(len(made), len(d.socket)) > maxSocket {
		err = os.Remove(within)
		if err == nil {
			d.dir, err = os.MkdirTemp("", "starling-api-")
		}
		if err != nil {
			return d, err
		}
		within, made = "", filepath.Join(d.dir, fileSocket)
		d.socket = made
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err == nil {
		ln.SetUnlinkOnClose(false)
		d.Listener = ln
		if err = os.Chmod(made, 0o600); err == nil && made != d.socket {
			err = os.Rename(made, d.socket)
		}
	}
	if within != "" {
		err = errors.Join(err, os.Remove(within))
	}
	if err != nil && d.Listener != nil {
		err = errors.Join(err, d.Close())
	}
	return d, err
}

// Close stops listening and removes the socket.
func (d door) Close() error {
	return errors.Join(d.Listener.Close(), d.gone())
}

// gone removes the socket.
func (d door) gone() (err error) {
	for _, path := range []string{d.socket, d.dir} {
		if path != "" {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// endpoint is how clients reach it.
func (d door) endpoint() api.Endpoint {
	if d.socket != "" {
		return api.Endpoint{URL: "http://" + socketHost, Socket: d.socket}
	}
	return api.Endpoint{URL: "http://" + d.Addr().String()}
}

// socketHost is the host in URLs of requests over the socket.
const socketHost = "starling"

// loopback refuses every address but one of loopback.
func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("address %q is not a loopback address such as 127.0.0.1:0", addr)
	}
	return nil
}

// serveHTTP answers requests until ctx ends.
func serveHTTP(ctx context.Context, ln net.Listener, h http.Handler, log *slog.Logger) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerWait,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	err := srv.Close() // streams end with ctx; nothing waits for a person here
	<-done
	return err
}
