package overlay

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/starling-network/starling/p2p/overlay/packet"
	"github.com/starling-network/starling/p2p/overlay/port"
	"github.com/starling-network/starling/p2p/overlay/turns"
)

// rename makes the paths that a socket finds name another port.
func rename(p, as port.Port) {
	if s, ok := p.(*port.Socket); ok {
		s.Alias(as)
	}
}

// sortFor sorts a train and returns how many bytes of it are QUIC's.
func sortFor(n *Network, t packet.Train, from netip.AddrPort) (total int) {
	for len(t.Data) > 0 {
		run, rest, quic := sorter{n}.Take(t, from, nil)
		if t = rest; quic {
			total += len(run.Data)
		}
	}
	return total
}

func TestASmallDatagramBehindBulkInOneTrainIsOnItsOwn(t *testing.T) {
	t.Parallel()
	d := &Device{inbox: turns.NewInbox[sentBy](&atomic.Uint64{})}
	m := &member{}
	b := packet.New(packet.Large)
	d.take(packet.Train{Buf: b, Data: b.B[:10*1452+160], Seg: 1452}, m, route{})
	d.take(packet.Train{Buf: b, Data: b.B[:2*1452+1000], Seg: 1452}, m, route{}) // its end is no small one
	b.Release()
	var sizes []int
	for a, ok := d.inbox.Get(); ok; a, ok = d.inbox.Get() {
		sizes = append(sizes, len(a.Data))
		a.Buf.Release()
	}
	if len(sizes) != 3 || sizes[0] != 160 || sizes[1] != 10*1452 || sizes[2] != 2*1452+1000 {
		t.Fatal("taken in this order: ", sizes)
	}
	if refs := b.Held(); refs != 0 {
		t.Errorf("%d hold the train", refs)
	}
}
