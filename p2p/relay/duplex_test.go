package relay_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/relay"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/p2p/stream/streampb"
)

// A duplex stream goes over a relayed connection, half-close included, and is broken for both ends, not ended, where the
// relay cuts it.
func TestDuplex(t *testing.T) {
	t.Parallel()
	_, at, client, target := trio(t, relay.Config{Limits: relay.Limits{Data: 1 << 20}})
	tunnel := stream.Duplex[*streampb.Text, *streampb.Text]{Name: "tunnel", Version: 1}
	served := make(chan error, 2)
	srv := tunnel.Serve(target, p2ptest.Network, func(_ context.Context, _ peer.ID, req *streampb.Text, accept func(*streampb.Text) (*stream.Conn, error)) error {
		c, err := accept(req)
		if err == nil {
			_, err = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
		}
		served <- err
		return err
	}, stream.Limits{Logger: p2ptest.Quiet()})
	defer srv.Close()
	ctx := network.WithAllowLimitedConn(t.Context(), "test")
	if err := client.Connect(ctx, via(at, target.ID())); err != nil {
		t.Fatal(err)
	}
	through := func(n int) (int, error) {
		_, c, err := tunnel.Open(t.Context(), client, p2ptest.Network, target.ID(), &streampb.Text{Text: "hello"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = c.Write(make([]byte, n))
			_ = c.CloseWrite()
		}()
		b, err := io.ReadAll(c)
		return len(b), err
	}
	if n, err := through(100 << 10); n != 100<<10 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	cut := func(where string, err error) {
		t.Helper()
		var r *stream.Relayed
		if !errors.Is(err, stream.ErrUnreachable) || !errors.As(err, &r) || r.Relay != at.ID() || r.Data != 1<<20 {
			t.Errorf("%s of a stream over the relay's limit: %v", where, err)
		}
	}
	_, err := through(4 << 20)
	cut("the near end", err)
	cut("the far end", <-served)
}
