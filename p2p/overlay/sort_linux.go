package overlay

import (
	"net"
	"net/netip"
	"slices"

	"github.com/starling-network/starling/p2p/overlay/packet"
	"github.com/starling-network/starling/p2p/overlay/turns"
	"github.com/starling-network/starling/p2p/overlay/wire"
)

// sort passes the datagrams of a train to their recipients, runs of them in one go. It never waits: a recipient without
// room loses them. The caller holds the train's buffer.
func (s *socket) sort(t packet.Train, from netip.AddrPort, oob []byte, udp func(netip.AddrPort) *net.UDPAddr) {
	for len(t.Data) > 0 {
		run := packet.Train{Buf: t.Buf, Data: t.Data, Seg: t.Seg}
		to := s.n.whose(t.Pop())
		for len(t.Data) > 0 && to.runs && s.n.whose(t.Data[:min(t.Seg, len(t.Data))]) == to {
			t.Pop()
		}
		run.Data = run.Data[: len(run.Data)-len(t.Data) : len(run.Data)-len(t.Data)]
		switch {
		case to.kind == wire.Other:
			run.Buf.Hold()
			select {
			case s.quic <- quicTrain{Train: run, from: udp(from), oob: slices.Clone(oob)}:
			default:
				run.Buf.Release()
				s.n.stats.dropped[dropQUIC].Add(1)
			}
		case to.device == nil:
			s.n.stats.dropped[dropStranger].Add(1)
		case to.kind == wire.Probe:
			to.device.heard(run.Data, to.member, route{port: s.as, to: from})
		default:
			to.device.take(run, to.member, route{port: s.as, to: from})
		}
	}
}

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
