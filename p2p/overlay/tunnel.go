package overlay

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/device"
	wgtun "golang.zx2c4.com/wireguard/tun"

	"github.com/starling-network/starling/p2p/overlay/packet"
	"github.com/starling-network/starling/p2p/overlay/tun"
	"github.com/starling-network/starling/p2p/overlay/turns"
)

const (
	// outsideAtOnce is how many packets go to Outside in one call.
	outsideAtOnce = 64
	// errorRate bounds the ICMP errors a second that a device sends its container.
	errorRate, errorBurst = 50, 50
)

// tunnel is the TUN as WireGuard sees it: it reads packets for members only, in fair turns, and writes those for this
// one.
type tunnel struct {
	*tun.TUN
	d      *Device
	errors *rate.Limiter
}

// openTunnel takes a TUN over; f is closed in any case.
func openTunnel(f *os.File) (*tun.TUN, error) {
	t, err := tun.Open(f)
	if errors.Is(err, tun.ErrNotTUN) {
		err = fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err != nil {
		return nil, fmt.Errorf("taking over the TUN: %w", err)
	}
	return t, nil
}

var _ wgtun.Device = (*tunnel)(nil)

func (t *tunnel) File() *os.File             { return nil }
func (t *tunnel) MTU() (int, error)          { return t.d.cfg.MTU, nil } // the interface may be in another namespace
func (t *tunnel) Name() (string, error)      { return t.Native.Name() }
func (t *tunnel) Events() <-chan wgtun.Event { return t.Native.Events() }
func (t *tunnel) BatchSize() int             { return turns.BatchSize }
func (t *tunnel) Close() error               { return t.Native.Close() }

func (t *tunnel) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	return t.d.queue.Get(bufs, sizes, offset)
}

// Write writes members' packets. WireGuard has checked that the source is the member's own address; the destination
// must be ours.
func (t *tunnel) Write(bufs [][]byte, offset int) (int, error) {
	defer t.d.passage.Leave(len(bufs))
	if len(bufs) > 0 && len(bufs[0]) >= offset+20 { // all are from one member
		if m := t.d.at(packet.Source(bufs[0][offset:])); m != nil {
			m.probing.heard.Store(time.Now().UnixNano())
		}
	}
	own := t.d.cfg.Address.As4()
	mine := func(b []byte) bool {
		p := b[offset:]
		return len(p) >= 20 && p[0]>>4 == 4 && [4]byte(p[16:20]) == own
	}
	if n := len(bufs); slices.ContainsFunc(bufs, func(b []byte) bool { return !mine(b) }) {
		bufs = slices.DeleteFunc(slices.Clone(bufs), func(b []byte) bool { return !mine(b) })
		t.d.n.stats.dropped[dropAstray].Add(uint64(n - len(bufs)))
		if len(bufs) == 0 {
			return 0, nil
		}
	}
	return t.Native.Write(bufs, offset)
}

// pump reads the TUN until it is closed and sorts its packets.
func (t *tunnel) pump() {
	scratch := packet.New(packet.Large)
	defer func() { scratch.Release() }()
	own := t.d.cfg.Address
	out := newOutside(t.d)
	for {
		n, err := t.TUN.File.Read(scratch.B)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) && t.d.ctx.Err() == nil {
				t.d.log.Debug("reading the TUN", "err", err)
			}
			return
		}
		p := &packet.Packet{}
		if err := packet.Parse(scratch.B[:n], p); err != nil {
			if n <= packet.VirtioHead || scratch.B[packet.VirtioHead]>>4 != 6 { // an interface speaks IPv6 of itself
				t.d.n.stats.dropped[dropMalformed].Add(1)
			}
			continue
		}
		if packet.Source(p.Data) != own {
			t.d.n.stats.dropped[dropSpoofed].Add(1)
			continue
		}
		to := packet.Destination(p.Data)
		if to == t.d.cfg.Service || !t.d.cfg.Prefix.Contains(to) {
			out.deliver(p)
			continue
		}
		m := t.d.at(to)
		if m == nil {
			t.d.n.stats.dropped[dropAstray].Add(1)
			continue
		}
		if mtu := m.largest(); !p.Fit(mtu) {
			t.d.n.stats.dropped[dropTooBig].Add(1)
			t.tooBig(p.Data, mtu)
			continue
		}
		if n <= packet.Small {
			p.Buf = packet.New(n)
			at := n - packet.VirtioHead
			copy(p.Buf.B, scratch.B[packet.VirtioHead:n])
			p.Data = p.Buf.B[:min(at, len(p.Data))]
		} else {
			p.Buf, scratch = scratch, packet.New(packet.Large)
		}
		t.d.queue.Put(&m.outlet, p)
	}
}

// outside gives packets to the world beyond.
type outside struct {
	d    *Device
	mem  []byte
	list [][]byte
}

func newOutside(d *Device) *outside {
	return &outside{d: d, mem: make([]byte, outsideAtOnce*packet.Small), list: make([][]byte, 0, outsideAtOnce)}
}

func (o *outside) deliver(p *packet.Packet) {
	if o.d.cfg.Outside == nil {
		o.d.n.stats.dropped[dropAstray].Add(1)
		return
	}
	if !p.Fit(o.d.cfg.MTU) {
		o.d.n.stats.dropped[dropTooBig].Add(1)
		o.d.tun.tooBig(p.Data, o.d.cfg.MTU)
		return
	}
	for !p.Empty() {
		o.list = o.list[:0]
		for len(o.list) < outsideAtOnce && !p.Empty() {
			b := o.mem[len(o.list)*packet.Small:][:packet.Small]
			if n := p.Next(b); n > 0 {
				o.list = append(o.list, b[:n:n])
			}
		}
		o.d.cfg.Outside.Deliver(o.list)
	}
}

// fromOutside writes Outside's packets for this member. It may not speak for members.
func (t *tunnel) fromOutside(packets [][]byte) error {
	if t.d.ctx.Err() != nil {
		return ErrClosed
	}
	ok := make([][]byte, 0, len(packets))
	for _, p := range packets {
		if len(p) < 20 || len(p) > packet.Large-device.MessageTransportHeaderSize || p[0]>>4 != 4 ||
			packet.Destination(p) != t.d.cfg.Address {
			t.d.n.stats.dropped[dropAstray].Add(1)
			continue
		}
		if from := packet.Source(p); from != t.d.cfg.Service && t.d.cfg.Prefix.Contains(from) {
			t.d.n.stats.dropped[dropSpoofed].Add(1)
			continue
		}
		ok = append(ok, p)
	}
	return t.Inject(ok)
}

// tooBig notifies the container of the largest packet size (RFC 1191). The answer comes from the service address.
func (t *tunnel) tooBig(p []byte, mtu int) {
	if !t.errors.AllowN(time.Now(), 1) {
		return
	}
	b := packet.TooBig(p, mtu, t.d.cfg.Service, t.d.cfg.Address)
	if b == nil {
		return
	}
	if err := t.Inject([][]byte{b}); err != nil {
		t.d.log.Debug("writing an ICMP error", "err", err)
	}
}
