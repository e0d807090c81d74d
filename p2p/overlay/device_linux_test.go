package overlay_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/starling-network/starling/p2p/overlay"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// echo answers every connection with what it says.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// talk sends data from one namespace to another and back.
func talk(t *testing.T, from, to *space, size int) {
	t.Helper()
	l := to.listen(t, to.addr.String()+":0")
	go echo(l)
	c := from.dial(t, l.Addr().String())
	data := bytes.Repeat([]byte("overlay!"), size/8)
	go func() {
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes came back of %d, %v", len(got), len(data), err)
	}
}

func TestTwoNamespacesTalkOverTheSharedPort(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	hosts := p2ptest.Loopback(t, 2)
	connect(t, hosts[0], hosts[1])
	a, b := newSpace(t, "10.77.0.2", 1420), newSpace(t, "10.77.0.3", 1420)
	da, db := join(t, hosts[0], a, 0), join(t, hosts[1], b, 1)
	setMembers(t, da, member(t, hosts[0], 0), member(t, hosts[1], 1))
	setMembers(t, db, member(t, hosts[0], 0), member(t, hosts[1], 1))
	talk(t, a, b, 4<<20)
	eventually(t, "a direct path with a large MTU", func() bool {
		m := da.Members()[0]
		return m.Path == overlay.PathDirect && m.MTU == overlay.MaxMTU && m.RTT > 0 && m.Rx > 4<<20 && !m.Handshake.IsZero()
	})
	talk(t, b, a, 1<<20)
	if dropped := hosts[0].Overlay().Stats().Dropped(); dropped["malformed"]+dropped["spoofed"]+dropped["too_big"] > 0 {
		t.Errorf("dropped: %v", dropped)
	}
}
