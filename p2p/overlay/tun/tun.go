// Package tun reads and writes a TUN that another process made, possibly in another network namespace.
package tun

import (
	"errors"
	"os"
	"sync"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	wgtun "golang.zx2c4.com/wireguard/tun"

	"github.com/starling-network/starling/p2p/overlay/packet"
)

var (
	// ErrNotTUN: the file is not a TUN, or was not made with IFF_TUN, IFF_NO_PI and IFF_VNET_HDR.
	ErrNotTUN = errors.New("no TUN")
	// ErrUnsupported: this system has no TUN devices that the overlay can use; it needs Linux.
	ErrUnsupported = errors.New("the overlay needs Linux")
)

// batchSize is how many packets are written at once.
const batchSize = conn.IdealBatchSize

// TUN is an adopted TUN device.
type TUN struct {
	Native wgtun.Device // writes, and puts segments together
	File   *os.File     // of Native, which is read from here: whole virtio packets

	write sync.Pool // *outgoing
}

// outgoing is memory for packets to write. The first bytes of each are left for a virtio header.
type outgoing struct {
	bufs [][]byte
	all  []*packet.Buffer
}

// Inject writes IPv4 packets, which it does not keep.
func (t *TUN) Inject(packets [][]byte) error {
	if len(packets) == 0 {
		return nil
	}
	w, _ := t.write.Get().(*outgoing)
	if w == nil {
		w = &outgoing{}
	}
	defer func() {
		for _, b := range w.all {
			b.Release()
		}
		clear(w.all)
		clear(w.bufs)
		w.all, w.bufs = w.all[:0], w.bufs[:0]
		t.write.Put(w)
	}()
	for len(packets) > 0 {
		n := min(len(packets), batchSize)
		for _, p := range packets[:n] {
			b := packet.New(packet.Large) // there is room for the next packets of the same flow
			at := copy(b.B[device.MessageTransportHeaderSize:], p)
			w.all, w.bufs = append(w.all, b), append(w.bufs, b.B[:device.MessageTransportHeaderSize+at])
		}
		if _, err := t.Native.Write(w.bufs, device.MessageTransportHeaderSize); err != nil {
			return err
		}
		packets = packets[n:]
		w.bufs = w.bufs[:0]
	}
	return nil
}
