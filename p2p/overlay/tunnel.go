package overlay

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
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
	native tun.Device // writes, and puts segments together
	file   *os.File   // of native; we read it ourselves, whole virtio packets
	d      *Device

	errors *rate.Limiter
	write  sync.Pool // *outgoing
}

// outgoing is memory for packets to the TUN that are not WireGuard's. The first bytes of each are left for a virtio
// header.
type outgoing struct {
	bufs [][]byte
	all  []*buffer
}

var _ tun.Device = (*tunnel)(nil)

func (t *tunnel) File() *os.File           { return nil }
func (t *tunnel) MTU() (int, error)        { return t.d.cfg.MTU, nil } // the interface may be in another namespace
func (t *tunnel) Name() (string, error)    { return t.native.Name() }
func (t *tunnel) Events() <-chan tun.Event { return t.native.Events() }
func (t *tunnel) BatchSize() int           { return batchSize }
func (t *tunnel) Close() error             { return t.native.Close() }

func (t *tunnel) Read(bufs [][]byte, sizes []int, offset int) (int, error) {
	return t.d.queue.get(bufs, sizes, offset)
}

// Write writes members' packets. WireGuard has checked that the source is the member's own address; the destination
// must be ours.
func (t *tunnel) Write(bufs [][]byte, offset int) (int, error) {
	defer t.d.passage.leave(len(bufs))
	if len(bufs) > 0 && len(bufs[0]) >= offset+20 { // all are from one member
		if m := t.d.at(source(bufs[0][offset:])); m != nil {
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
	return t.native.Write(bufs, offset)
}

// pump reads the TUN until it is closed and sorts its packets.
func (t *tunnel) pump() {
	scratch := newBuffer(largeBuffer)
	defer func() { scratch.release() }()
	own := t.d.cfg.Address
	out := newOutside(t.d)
	for {
		n, err := t.file.Read(scratch.b)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) && t.d.ctx.Err() == nil {
				t.d.log.Debug("reading the TUN", "err", err)
			}
			return
		}
		p := &packet{}
		if err := parsePacket(scratch.b[:n], p); err != nil {
			if n <= virtioHead || scratch.b[virtioHead]>>4 != 6 { // an interface speaks IPv6 of itself
				t.d.n.stats.dropped[dropMalformed].Add(1)
			}
			continue
		}
		if source(p.data) != own {
			t.d.n.stats.dropped[dropSpoofed].Add(1)
			continue
		}
		to := destination(p.data)
		if to == t.d.cfg.Service || !t.d.cfg.Prefix.Contains(to) {
			out.deliver(p)
			continue
		}
		m := t.d.at(to)
		if m == nil {
			t.d.n.stats.dropped[dropAstray].Add(1)
			continue
		}
		if mtu := m.largest(); !p.fit(mtu) {
			t.d.n.stats.dropped[dropTooBig].Add(1)
			t.tooBig(p.data, mtu)
			continue
		}
		p.member = m
		if n <= smallBuffer {
			p.buf = newBuffer(n)
			at := n - virtioHead
			copy(p.buf.b, scratch.b[virtioHead:n])
			p.data = p.buf.b[:min(at, len(p.data))]
		} else {
			p.buf, scratch = scratch, newBuffer(largeBuffer)
		}
		t.d.queue.put(p)
	}
}

// outside gives packets to the world beyond.
type outside struct {
	d    *Device
	mem  []byte
	list [][]byte
}

func newOutside(d *Device) *outside {
	return &outside{d: d, mem: make([]byte, outsideAtOnce*smallBuffer), list: make([][]byte, 0, outsideAtOnce)}
}

func (o *outside) deliver(p *packet) {
	if o.d.cfg.Outside == nil {
		o.d.n.stats.dropped[dropAstray].Add(1)
		return
	}
	if !p.fit(o.d.cfg.MTU) {
		o.d.n.stats.dropped[dropTooBig].Add(1)
		o.d.tun.tooBig(p.data, o.d.cfg.MTU)
		return
	}
	for !p.empty() {
		o.list = o.list[:0]
		for len(o.list) < outsideAtOnce && !p.empty() {
			b := o.mem[len(o.list)*smallBuffer:][:smallBuffer]
			if n := p.next(b); n > 0 {
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
		if len(p) < 20 || len(p) > largeBuffer-device.MessageTransportHeaderSize || p[0]>>4 != 4 ||
			destination(p) != t.d.cfg.Address {
			t.d.n.stats.dropped[dropAstray].Add(1)
			continue
		}
		if from := source(p); from != t.d.cfg.Service && t.d.cfg.Prefix.Contains(from) {
			t.d.n.stats.dropped[dropSpoofed].Add(1)
			continue
		}
		ok = append(ok, p)
	}
	return t.inject(ok)
}

// inject writes packets of ours to the TUN.
func (t *tunnel) inject(packets [][]byte) error {
	if len(packets) == 0 {
		return nil
	}
	w, _ := t.write.Get().(*outgoing)
	if w == nil {
		w = &outgoing{}
	}
	defer func() {
		for _, b := range w.all {
			b.release()
		}
		clear(w.all)
		clear(w.bufs)
		w.all, w.bufs = w.all[:0], w.bufs[:0]
		t.write.Put(w)
	}()
	for len(packets) > 0 {
		n := min(len(packets), batchSize)
		for _, p := range packets[:n] {
			b := newBuffer(largeBuffer) // there is room for the next packets of the same flow
			at := copy(b.b[device.MessageTransportHeaderSize:], p)
			w.all, w.bufs = append(w.all, b), append(w.bufs, b.b[:device.MessageTransportHeaderSize+at])
		}
		if _, err := t.native.Write(w.bufs, device.MessageTransportHeaderSize); err != nil {
			return err
		}
		packets = packets[n:]
		w.bufs = w.bufs[:0]
	}
	return nil
}

// tooBig notifies the container of the largest packet size (RFC 1191). The answer comes from the service address.
func (t *tunnel) tooBig(p []byte, mtu int) {
	// no errors about errors
	if !t.errors.AllowN(time.Now(), 1) || p[9] == protoICMP && len(p) > 20 && p[int(p[0]&15)*4] != 8 {
		return
	}
	quoted := min(len(p), int(p[0]&15)*4+8)
	b := make([]byte, 28+quoted)
	b[0], b[8], b[9] = 0x45, 64, protoICMP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	put4(b[12:], t.d.cfg.Service)
	put4(b[16:], t.d.cfg.Address)
	binary.BigEndian.PutUint16(b[10:], ^fold(sum(b[:20], 0)))
	icmp := b[20:]
	icmp[0], icmp[1] = 3, 4 // fragmentation needed
	binary.BigEndian.PutUint16(icmp[6:], uint16(mtu))
	copy(icmp[8:], p[:quoted])
	binary.BigEndian.PutUint16(icmp[2:], ^fold(sum(icmp, 0)))
	if err := t.inject([][]byte{b}); err != nil {
		t.d.log.Debug("writing an ICMP error", "err", err)
	}
}

func put4(b []byte, a netip.Addr) {
	four := a.As4()
	copy(b, four[:])
}
