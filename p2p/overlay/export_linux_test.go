package overlay

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/curve25519"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/starling-network/starling/p2p/overlay/port"
	"github.com/starling-network/starling/p2p/overlay/wire"
)

// Wire is a UDP port that a test can cut, and that it can give datagrams as if they had come.
type Wire struct {
	port.Port
	Down atomic.Bool
	Most atomic.Int64 // larger datagrams are lost; 0: none are

	mu   sync.Mutex
	keep bool
	kept [][]byte
	to   map[netip.AddrPort]int // bytes
}

func (w *Wire) Send(packets [][]byte, to netip.AddrPort) error {
	most := int(w.Most.Load())
	if w.Down.Load() {
		return nil
	}
	w.mu.Lock()
	for _, p := range packets {
		if w.to == nil {
			w.to = make(map[netip.AddrPort]int)
		}
		w.to[to] += len(p)
		if w.keep {
			w.kept = append(w.kept, slices.Clone(p))
		}
	}
	w.mu.Unlock()
	for _, p := range packets {
		if most > 0 && len(p) > most {
			continue
		}
		if err := w.Port.Send([][]byte{p}, to); err != nil {
			return err
		}
	}
	return nil
}

// Rewire puts a Wire around every port of a host.
func Rewire(n *Network) []*Wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*Wire
	for i, p := range n.ports {
		w := &Wire{Port: p}
		n.ports[i] = w
		rename(p, w)
		out = append(out, w)
	}
	return out
}

// Protocol is the stream protocol of a host's overlays.
var Protocol = (*Network).protocol

// Hello and Frame are a stream's first bytes, and a packet on it.
var (
	Hello = wire.Hello
	Frame = wire.AppendFrame
)

// UDPOf is the UDP address under a multiaddress of QUIC.
var UDPOf = udpOf

// Record keeps what the port sends from now on, until the returned function is called.
func (w *Wire) Record() (sent func() [][]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keep = true
	return func() [][]byte {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.keep = false
		return w.kept
	}
}

// To is how many bytes were sent to an address.
func (w *Wire) To(a netip.AddrPort) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to[a]
}

// At is where a member's packets are sent, zero without a direct path.
func At(d *Device, key PublicKey) (at netip.AddrPort) {
	if m := d.member(key); m != nil {
		if r := m.direct.Load(); r != nil {
			at = r.to
		}
	}
	return at
}

// Forged is an initiation to a device that says it is from a member, by one who has neither's private key.
func Forged(t testing.TB, to, member PublicKey) []byte {
	t.Helper()
	ephemeral := PrivateKey{0: 8, 1: 99, 31: 64}
	pub, err := ephemeral.Public()
	if err != nil {
		t.Fatal(err)
	}
	var hash, chain [blake2s.Size]byte
	mixHash(&hash, device.InitialHash[:], to[:])
	mixHash(&hash, hash[:], pub[:])
	device.KDF1(&chain, device.InitialChainKey[:], pub[:])
	shared, err := curve25519.X25519(ephemeral[:], to[:])
	if err != nil {
		t.Fatal(err)
	}
	var key [chacha20poly1305.KeySize]byte
	device.KDF2(&chain, &key, chain[:], shared)
	aead, err := chacha20poly1305.New(key[:])
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, device.MessageInitiationSize)
	b[0] = wire.Initiation
	copy(b[8:], pub[:])
	aead.Seal(b[40:40], device.ZeroNonce[:], member[:], hash[:])
	var macs device.CookieGenerator
	macs.Init(device.NoisePublicKey(to))
	macs.AddMacs(b)
	return b
}

// nowhere is a TUN from which nothing comes.
type nowhere struct {
	tun.Device
	closed chan struct{}
	events chan tun.Event
}

func (n nowhere) MTU() (int, error)                      { return wire.DefaultMTU, nil }
func (n nowhere) BatchSize() int                         { return 1 }
func (n nowhere) Events() <-chan tun.Event               { return n.events }
func (n nowhere) Read([][]byte, []int, int) (int, error) { <-n.closed; return 0, os.ErrClosed }
func (n nowhere) Close() error {
	close(n.closed)
	close(n.events)
	return nil
}

// catcher is a bind that keeps the first datagram that is sent.
type catcher struct {
	conn.Bind
	first chan []byte
}

func (c catcher) Send(bufs [][]byte, _ conn.Endpoint) error {
	select {
	case c.first <- slices.Clone(bufs[0]):
	default:
	}
	return nil
}

// Initiation is the first datagram of a handshake of from with to, as WireGuard makes it.
func Initiation(t testing.TB, to PublicKey, from PrivateKey) []byte {
	t.Helper()
	c := catcher{conn.NewDefaultBind(), make(chan []byte, 1)}
	d := device.NewDevice(nowhere{closed: make(chan struct{}), events: make(chan tun.Event)}, c, device.NewLogger(device.LogLevelSilent, ""))
	defer d.Close()
	if err := d.IpcSet(fmt.Sprintf("private_key=%x\npublic_key=%s\nendpoint=127.0.0.1:9\npersistent_keepalive_interval=1\n", from[:], to)); err != nil {
		t.Fatal(err)
	}
	if err := d.Up(); err != nil {
		t.Fatal(err)
	}
	return <-c.first
}

// Share makes the ports of a host sort what comes, as after the first Join.
func Share(n *Network) {
	for _, p := range n.ports {
		p.Share()
	}
}

func mixHash(to *[blake2s.Size]byte, h, data []byte) { *to = blake2s.Sum256(slices.Concat(h, data)) }
