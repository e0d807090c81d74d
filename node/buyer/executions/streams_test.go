package executions

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// Each stream names its execution and its program, port or path. A provider that refuses one ends it.
func TestStreams(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	p2ptest.ConnectAll(t, hosts...)
	asked := make(chan *nodepb.LiveRequest, 9)
	no := stream.Refuse("execution", "it is not there")
	server := protocol.Live.Serve(hosts[1], p2ptest.Network,
		func(_ context.Context, _ peer.ID, req *nodepb.LiveRequest, _ func(*nodepb.LiveReply) (*stream.Conn, error)) error {
			asked <- req
			return no
		}, stream.Limits{Logger: p2ptest.Quiet()})
	defer server.Close()
	c := New(Config{Host: hosts[0], Tag: p2ptest.Network, LostAfter: time.Minute})
	x := Execution{Peer: hosts[1].ID(), Lease: market.LeaseID{7}, Seq: 3}
	ctx := t.Context()
	for name, k := range map[string]struct {
		call func() error
		is   func(*nodepb.LiveRequest) bool
	}{
		"attach": {func() error {
			_, err := c.Attach(ctx, x, Program{Args: []string{"sh"}, TTY: true, Rows: 24})
			return err
		}, func(r *nodepb.LiveRequest) bool {
			a := r.GetAttach()
			return a.GetArgs()[0] == "sh" && a.Tty && a.Rows == 24
		}},
		"forward": {func() error {
			_, err := c.Forward(ctx, x, 8265)
			return err
		}, func(r *nodepb.LiveRequest) bool { return r.GetForward().GetPort() == 8265 }},
		"copy out": {func() error {
			return c.CopyOut(ctx, x, lease{ctx: ctx}, "/out", &bytes.Buffer{})
		}, func(r *nodepb.LiveRequest) bool { return r.GetCopyOut().GetPath() == "/out" }},
		"copy in": {func() error {
			return c.CopyIn(ctx, x, "/in", true, io.NopCloser(strings.NewReader("")))
		}, func(r *nodepb.LiveRequest) bool { return r.GetCopyIn().GetPath() == "/in" && r.GetCopyIn().Directory }},
	} {
		err := k.call()
		var refused *stream.Refused
		if !errors.As(err, &refused) || refused.Code != "execution" {
			t.Errorf("%s: %v", name, err)
		}
		req := <-asked
		if !k.is(req) || market.LeaseID(req.Lease) != x.Lease || req.Seq != x.Seq {
			t.Errorf("%s: the provider was asked for %v", name, req)
		}
	}
}
