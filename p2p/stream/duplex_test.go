package stream_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

var tunnel = stream.Duplex[text, text]{Name: "tunnel", Version: 1, MaxRequest: 1 << 10, MaxResponse: 1 << 10, Deadline: 2 * time.Second, Idle: time.Minute}

// parrot answers a request by its text and then sends back in capitals what it reads.
func parrot(_ context.Context, _ peer.ID, req text, accept func(text) (*stream.Conn, error)) error {
	switch req.GetText() {
	case "refuse":
		return stream.Refuse("no", "not today")
	case "forget":
		return nil
	case "large":
		_, err := accept(say(strings.Repeat("x", 2<<10)))
		return err
	case "panic":
		panic("boom")
	}
	c, err := accept(say("welcome"))
	if err != nil {
		return err
	}
	switch req.GetText() {
	case "twice":
		if _, err := accept(say("again")); err == nil {
			return errors.New("accepted twice")
		}
	case "break":
		return errors.New("secret path")
	}
	b, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	_, err = io.WriteString(c, strings.ToUpper(string(b)))
	return err
}

func TestDuplex(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	srv := tunnel.Serve(b, p2ptest.Network, parrot, quiet)
	defer srv.Close()
	connect(t, a, b)
	for _, word := range []string{"hello", "twice"} {
		resp, c, err := tunnel.Open(t.Context(), a, p2ptest.Network, b.ID(), say(word))
		if err != nil || resp.GetText() != "welcome" {
			t.Fatalf("got %v, %v", resp, err)
		}
		// More than any window, so that both ends move at once; the half that is closed leaves the other open.
		big := strings.Repeat("abcdefgh", 1<<16)
		go func() {
			_, _ = io.WriteString(c, big)
			_ = c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || string(got) != strings.ToUpper(big) {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if s := srv.Stats(); s.Answered != 2 {
		t.Errorf("%+v", s)
	}
}

func TestDuplexErrors(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	defer tunnel.Serve(b, p2ptest.Network, parrot, quiet).Close()
	connect(t, a, b)
	open := func(s string) error {
		_, c, err := tunnel.Open(t.Context(), a, p2ptest.Network, b.ID(), say(s))
		if err == nil {
			_, err = io.ReadAll(c)
			_ = c.Close()
		}
		return err
	}
	var refused *stream.Refused
	if err := open("refuse"); !errors.As(err, &refused) || refused.Reason != "not today" {
		t.Errorf("refuse: %v", err)
	}
	for _, s := range []string{"forget", "large", "panic"} {
		if err := open(s); !errors.Is(err, stream.ErrInternal) {
			t.Errorf("%s: %v", s, err)
		}
	}
	if err := open("break"); !errors.Is(err, stream.ErrUnreachable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("break: %v", err)
	}
	if err := open(strings.Repeat("x", 2<<10)); !errors.Is(err, stream.ErrTooLarge) {
		t.Errorf("oversized request: %v", err)
	}
	if _, _, err := tunnel.Open(t.Context(), b, p2ptest.Network, a.ID(), say("x")); !errors.Is(err, stream.ErrUnsupported) {
		t.Errorf("unsupported: %v", err)
	}
}

// The end of the caller's context breaks the stream on both sides, and so does the end of the server.
func TestDuplexEnds(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	ended := make(chan error, 1)
	srv := tunnel.Serve(b, p2ptest.Network, func(ctx context.Context, _ peer.ID, _ text, accept func(text) (*stream.Conn, error)) error {
		c, err := accept(say(""))
		if err != nil {
			return err
		}
		_, err = io.ReadAll(c)
		ended <- err
		return err
	}, quiet)
	defer srv.Close()
	connect(t, a, b)
	ctx, cancel := context.WithCancel(t.Context())
	_, c, err := tunnel.Open(ctx, a, p2ptest.Network, b.ID(), say("x"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the server took a broken stream for a whole one")
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("reading goes on after the context")
	}
	_, c, err = tunnel.Open(t.Context(), a, p2ptest.Network, b.ID(), say("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	srv.Close()
	<-ended
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the caller took a broken stream for a whole one")
	}
}

// A peer that says nothing is given up: while opening after the deadline, later after the idle time; bytes in either
// direction keep the stream.
func TestDuplexDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 2, 2*time.Millisecond)
		a, b := net.Hosts[0], net.Hosts[1]
		if err := a.Connect(t.Context(), net.Addr(1)); err != nil {
			t.Fatal(err)
		}
		b.SetStreamHandler(tunnel.ID("mute"), func(s network.Stream) {})
		_, _, err := tunnel.Open(t.Context(), a, "mute", b.ID(), say("x"))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a mute peer: %v", err)
		}
		srv := tunnel.Serve(b, p2ptest.Network, func(ctx context.Context, _ peer.ID, _ text, accept func(text) (*stream.Conn, error)) error {
			c, err := accept(say(""))
			if err != nil {
				return err
			}
			for range 5 {
				time.Sleep(45 * time.Second)
				if _, err := c.Write([]byte("x")); err != nil {
					return err
				}
			}
			_, err = io.ReadAll(c)
			return err
		}, quiet)
		defer srv.Close()
		_, c, err := tunnel.Open(t.Context(), a, p2ptest.Network, b.ID(), say("x"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		began := time.Now()
		b5, err := io.ReadAll(c)
		if len(b5) != 5 || !errors.Is(err, stream.ErrUnreachable) {
			t.Errorf("%q, %v", b5, err)
		}
		if d := time.Since(began); d < 5*45*time.Second+50*time.Second || d > 5*45*time.Second+70*time.Second {
			t.Errorf("ended after %v", d)
		}
	})
}

// A peer that reads nothing must not keep the other one in a Write after its Close, until Idle. Since it did not get
// everything, it sees a broken stream.
func TestAttackUnreadWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 2, 2*time.Millisecond)
		a, b := net.Hosts[0], net.Hosts[1]
		began, ended := make(chan *stream.Conn, 1), make(chan error, 1)
		srv := tunnel.Serve(b, p2ptest.Network, func(_ context.Context, _ peer.ID, _ text, accept func(text) (*stream.Conn, error)) error {
			c, err := accept(say(""))
			if err != nil {
				return err
			}
			began <- c
			_, err = c.Write(make([]byte, 64<<20))
			ended <- err
			return nil
		}, quiet)
		defer srv.Close()
		net.ConnectAll()
		_, c, err := tunnel.Open(t.Context(), a, p2ptest.Network, b.ID(), say("x"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		far := <-began
		time.Sleep(10 * time.Second) // the windows are full
		closed := time.Now()
		if err := far.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, stream.ErrUnreachable) || time.Since(closed) > time.Second {
			t.Errorf("the write ended %v after Close: %v", time.Since(closed), err)
		}
		if n, err := io.Copy(io.Discard, c); err == nil {
			t.Errorf("%d bytes were taken for all", n)
		}
	})
}
