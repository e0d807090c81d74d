package stream_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// A peer with one place refuses most of twenty callers at a time, and all of them get their answer.
func TestWhileBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const callers = 20
		net := p2ptest.NewNet(t, 2, 10*time.Millisecond)
		net.ConnectAll()
		slow := func(_ context.Context, _ peer.ID, req text) (text, error) {
			time.Sleep(100 * time.Millisecond)
			return req, nil
		}
		limits := stream.Limits{Concurrent: 1, PerPeer: 2 * callers, Logger: p2ptest.Quiet()}
		srv := echo.Handle(net.Hosts[1], p2ptest.Network, slow, limits)
		defer srv.Close()
		var wg sync.WaitGroup
		var refused atomic.Int64
		for range callers {
			wg.Go(func() {
				err := stream.WhileBusy(t.Context(), func() error {
					_, err := echo.Call(t.Context(), net.Hosts[0], p2ptest.Network, net.Hosts[1].ID(), say("x"))
					if err != nil {
						refused.Add(1)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := srv.Stats(); got.Answered != callers || refused.Load() < callers/2 {
			t.Errorf("%d of %d calls were answered, %d refused", got.Answered, callers, refused.Load())
		}
	})
}

// Waiting ends with the context, and at once where another call would get the same answer.
func TestWhileBusyEnds(t *testing.T) {
	t.Parallel()
	busy, other := stream.Refuse(stream.CodeBusy, "full"), stream.Refuse("lease", "no such lease")
	for name, c := range map[string]struct {
		answers []error // the last one is repeated
		want    error
		calls   int           // 0: any
		most    time.Duration // of waiting
	}{
		"at once":   {[]error{nil}, nil, 1, 0},
		"refused":   {[]error{other}, other, 1, 0},
		"lost":      {[]error{stream.ErrUnreachable}, stream.ErrUnreachable, 1, 0},
		"its turn":  {[]error{busy, busy, busy, nil}, nil, 4, 3 * time.Second},
		"then no":   {[]error{busy, other}, other, 2, time.Second},
		"never":     {[]error{busy}, busy, 0, time.Minute},
		"last call": {[]error{busy, busy, busy, busy, busy, busy, busy, nil}, nil, 8, 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			calls, began := 0, time.Now()
			err := stream.WhileBusy(ctx, func() error {
				calls++
				return c.answers[min(calls, len(c.answers))-1]
			})
			if took := time.Since(began); !errors.Is(err, c.want) || c.calls > 0 && calls != c.calls || took > c.most {
				t.Errorf("%s: %d calls in %v, %v; want %d, %v", name, calls, took, err, c.calls, c.want)
			}
			if c.calls == 0 && calls < 10 {
				t.Errorf("%s: %d calls in a minute", name, calls)
			}
		})
	}
}
