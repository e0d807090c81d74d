package discovery

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/p2p/p2ptest"
)

// A record that changes again and again is told by its peer at once and put into the DHT seldom; its topics are stored anew only in
// time. One of other topics is pushed at once.
func TestChangesAreGathered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 6
		net := p2ptest.NewNet(t, n, 20*time.Millisecond)
		var ds []*Discovery
		for _, h := range net.Hosts {
			d := join(t, h)
			ds = append(ds, d)
			p2ptest.Go(t, d.Run)
		}
		net.ConnectAll()
		time.Sleep(2 * DefaultValidity / 5) // the early pushes are over
		d, other := ds[0], ds[1]
		copied := func() string {
			data, err := other.dht.GetValue(t.Context(), key(d.h.ID()))
			if err != nil {
				t.Fatal(err)
			}
			r, err := decode(p2ptest.Network, d.h.ID(), data, time.Now(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return string(r.Payload)
		}
		told := func() string { return string(found(t, other, Topic{"cpu", "local"}, 1)[0].Record.Payload) }
		publish := func(class, payload string) {
			if err := d.Publish(t.Context(), offer(class, "local", payload)); err != nil {
				t.Fatal(err)
			}
		}
		publish("cpu", "first")
		first := d.pusher.last.at
		if got := copied(); got != "first" {
			t.Fatalf("the copy is %q", got)
		}
		for i := range 10 {
			publish("cpu", fmt.Sprint(i))
			time.Sleep(time.Second)
		}
		if got := told(); got != "9" {
			t.Errorf("who asks is told %q", got)
		}
		if got := copied(); got != "first" {
			t.Errorf("after 10 s the copy is %q", got)
		}
		time.Sleep(DefaultValidity / pushesEach)
		if got := copied(); got != "9" {
			t.Errorf("liveness: the copy is still %q", got)
		}
		for k, at := range d.pusher.stored {
			if !at.Equal(first) {
				t.Errorf("a topic that did not change was stored again: %v", k)
			}
		}
		publish("gpu/h100", "other")
		if got := copied(); got != "other" {
			t.Errorf("the copy of a record of other topics is %q", got)
		}
		if got := found(t, other, Topic{"gpu/h100", "local"}, 1); !got[0].Live {
			t.Error("not found live")
		}
		time.Sleep(DefaultValidity)
		for k, at := range d.pusher.stored {
			if time.Since(at) > DefaultValidity/2 {
				t.Errorf("liveness: topic %v was stored %v ago", k, time.Since(at))
			}
		}
	})
}
