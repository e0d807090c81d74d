package overlay

import (
	"net"
	"net/netip"
	"slices"
)

// sort passes the datagrams of a train to their recipients, runs of them in one go. It never waits: a recipient without
// room loses them. The caller holds the train's buffer.
func (s *socket) sort(t train, from netip.AddrPort, oob []byte, udp func(netip.AddrPort) *net.UDPAddr) {
	for len(t.data) > 0 {
		run := train{buf: t.buf, data: t.data, seg: t.seg}
		to := s.n.whose(t.pop())
		for len(t.data) > 0 && to.runs && s.n.whose(t.data[:min(t.seg, len(t.data))]) == to {
			t.pop()
		}
		run.data = run.data[: len(run.data)-len(t.data) : len(run.data)-len(t.data)]
		switch {
		case to.kind == kindOther:
			run.buf.hold()
			select {
			case s.quic <- quicTrain{train: run, from: udp(from), oob: slices.Clone(oob)}:
			default:
				run.buf.release()
				s.n.stats.dropped[dropQUIC].Add(1)
			}
		case to.device == nil:
			s.n.stats.dropped[dropStranger].Add(1)
		case to.kind == kindProbe:
			to.device.heard(run.data, to.member, route{port: s.as, to: from})
		default:
			to.device.take(run, to.member, route{port: s.as, to: from})
		}
	}
}

// take queues a train. A small datagram at its end is on its own: it is a heartbeat that was sent behind bulk.
func (d *Device) take(t train, m *member, from route) {
	if n := len(t.data) % t.seg; t.seg > smallDatagram && len(t.data) > t.seg && n > 0 && n <= smallDatagram {
		at := len(t.data) - n
		d.inbox.put(arrival{train: train{buf: t.buf, data: t.data[:at:at], seg: t.seg}, member: m, from: from})
		t.data, t.seg = t.data[at:], n
	}
	d.inbox.put(arrival{train: t, member: m, from: from})
}
