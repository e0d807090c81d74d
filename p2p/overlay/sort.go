package overlay

import (
	"net/netip"

	"github.com/starling-network/starling/p2p/overlay/packet"
	"github.com/starling-network/starling/p2p/overlay/port"
	"github.com/starling-network/starling/p2p/overlay/turns"
	"github.com/starling-network/starling/p2p/overlay/wire"
)

// sorter passes the datagrams of a port to the devices of a host. It is a [port.Handler].
type sorter struct{ n *Network }

// Take implements port.Handler.
func (s sorter) Take(t packet.Train, from netip.AddrPort, at port.Port) (taken, rest packet.Train, quic bool) {
	taken = t
	to := s.n.whose(t.Pop())
	for len(t.Data) > 0 && to.runs && s.n.whose(t.Data[:min(t.Seg, len(t.Data))]) == to {
		t.Pop()
	}
	taken.Data = taken.Data[: len(taken.Data)-len(t.Data) : len(taken.Data)-len(t.Data)]
	switch {
	case to.kind == wire.Other:
		return taken, t, true
	case to.device == nil:
		s.n.stats.dropped[dropStranger].Add(1)
	case to.kind == wire.Probe:
		to.device.heard(taken.Data, to.member, route{port: at, to: from})
	default:
		to.device.take(taken, to.member, route{port: at, to: from})
	}
	return taken, t, false
}

// Lost implements port.Handler.
func (s sorter) Lost() { s.n.stats.dropped[dropQUIC].Add(1) }

// Closed implements port.Handler.
func (s sorter) Closed(p port.Port) { s.n.forget(p) }

// take queues a train. A small datagram at its end is on its own: it is a heartbeat that was sent behind bulk.
func (d *Device) take(t packet.Train, m *member, from route) {
	n := len(t.Data) % t.Seg
	if t.Seg > turns.SmallDatagram && len(t.Data) > t.Seg && n > 0 && n <= turns.SmallDatagram {
		at := len(t.Data) - n
		d.inbox.Put(m.arrival(packet.Train{Buf: t.Buf, Data: t.Data[:at:at], Seg: t.Seg}, from))
		t.Data, t.Seg = t.Data[at:], n
	}
	d.inbox.Put(m.arrival(t, from))
}
