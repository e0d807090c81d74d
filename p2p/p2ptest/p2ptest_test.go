package p2ptest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// A bubble may end at any time: nothing is left running.
func TestEndsAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			p2ptest.NewNet(t, 2, 10*time.Millisecond)
		})
	}
}

// rtt pings host to from host from.
func rtt(t *testing.T, net *p2ptest.Net, from, to int) (time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r, ok := <-ping.Ping(ctx, net.Hosts[from], net.Addr(to).ID)
	if !ok {
		return 0, ctx.Err()
	}
	return r.RTT, r.Error
}

func TestNet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const want = 60 * time.Millisecond
		net := p2ptest.NewNet(t, 3, want)
		net.ConnectAll()
		if got, err := rtt(t, net, 0, 1); err != nil || got < want || got > want+want/10 {
			t.Errorf("round trip %v, %v; want %v", got, err, want)
		}
		net.Partition(0, 1)
		if _, err := rtt(t, net, 0, 1); err != nil {
			t.Errorf("within a side: %v", err)
		}
		if _, err := rtt(t, net, 1, 2); err == nil {
			t.Error("heard across a partition")
		}
		net.Heal()
		if _, err := rtt(t, net, 1, 2); err != nil {
			t.Errorf("after healing: %v", err)
		}
		// Nobody hears of a crash but by silence, and the host is the same one after it.
		net.Crash(2)
		time.Sleep(time.Second)
		if net.Hosts[0].Network().Connectedness(net.Addr(2).ID) != network.Connected {
			t.Error("the crash was heard of at once")
		}
		time.Sleep(time.Minute)
		if net.Hosts[0].Network().Connectedness(net.Addr(2).ID) == network.Connected {
			t.Error("the crash was never noticed")
		}
		h := net.Restart(2, p2p.Config{})
		if h.ID() != net.Addr(2).ID {
			t.Errorf("came back as %s", h.ID())
		}
		net.ConnectAll()
		if _, err := rtt(t, net, 0, 2); err != nil {
			t.Errorf("after a restart: %v", err)
		}
	})
}

func TestGoStops(t *testing.T) {
	t.Parallel()
	ended := false
	stop := p2ptest.Go(t, func(ctx context.Context) error {
		<-ctx.Done()
		ended = true
		if !errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return nil
	})
	stop()
	if !ended {
		t.Error("stop did not wait")
	}
	stop()
}
