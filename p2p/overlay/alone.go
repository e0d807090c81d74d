package overlay

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"

	"github.com/starling-network/starling/p2p/overlay/packet"
	"github.com/starling-network/starling/p2p/overlay/tun"
)

// AloneConfig is the network of an execution that is in no overlay.
type AloneConfig struct {
	Address netip.Addr   // of the execution, IPv4
	Tun     *os.File     // as [Config.Tun]
	Outside Outside      // where all packets go
	Log     *slog.Logger // nil means slog.Default()
}

// Alone is the network of an execution that is in no overlay: its TUN and Outside, with nothing between them.
type Alone struct {
	cfg  AloneConfig
	tun  *tun.TUN
	done chan struct{} // closed after the last read
	once sync.Once
	shut chan struct{}
}

// NewAlone takes the TUN over, also when it fails, and carries packets until Close. Errors: ErrConfig, ErrUnsupported.
func NewAlone(cfg AloneConfig) (*Alone, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Tun == nil || cfg.Outside == nil || !cfg.Address.Is4() {
		err := fmt.Errorf("%w: want a TUN, a way out and an IPv4 address", ErrConfig)
		if cfg.Tun != nil {
			err = errors.Join(err, cfg.Tun.Close())
		}
		return nil, err
	}
	t, err := openTunnel(cfg.Tun)
	if err != nil {
		return nil, err
	}
	a := &Alone{cfg: cfg, tun: t, done: make(chan struct{}), shut: make(chan struct{})}
	cfg.Outside.SetWriter(a.write)
	go a.pump()
	return a, nil
}

// Close closes the TUN, and returns when all forwarding has stopped.
func (a *Alone) Close() (err error) {
	a.once.Do(func() {
		close(a.shut)
		err = a.tun.Native.Close()
		<-a.done
		a.cfg.Outside.SetWriter(nil)
	})
	return err
}

// pump passes the execution's packets to Outside until the TUN is closed. Segments of TCP stay together as the kernel
// gave them.
func (a *Alone) pump() {
	defer close(a.done)
	raw, cut := make([]byte, packet.Large), make([]byte, packet.Large)
	list := make([][]byte, 1)
	for {
		n, err := a.tun.File.Read(raw)
		if err != nil {
			select {
			case <-a.shut:
			default:
				a.cfg.Log.Debug("reading the TUN", "err", err)
			}
			return
		}
		p := packet.Packet{}
		if packet.Parse(raw[:n], &p) != nil || packet.Source(p.Data) != a.cfg.Address {
			continue // an interface speaks IPv6 of itself
		}
		if p.Seg == 0 || p.Proto == packet.TCP {
			list[0] = p.Data
			a.cfg.Outside.Deliver(list)
			continue
		}
		for !p.Empty() {
			if n := p.Next(cut); n > 0 {
				list[0] = cut[:n:n]
				a.cfg.Outside.Deliver(list)
			}
		}
	}
}

// write writes Outside's packets for the execution.
func (a *Alone) write(packets [][]byte) error {
	ok := make([][]byte, 0, len(packets))
	for _, p := range packets {
		if len(p) >= 20 && len(p) <= packet.Large-packet.VirtioHead && p[0]>>4 == 4 &&
			packet.Destination(p) == a.cfg.Address {
			ok = append(ok, p)
		}
	}
	return a.tun.Inject(ok)
}
