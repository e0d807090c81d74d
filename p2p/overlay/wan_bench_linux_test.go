package overlay_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/starling-network/starling/testnet/natlab"
)

// wan is an emulated line, each way: so many bits a second, half the round trip, a queue, and packets lost by chance. The
// kernel of a test machine has no netem, so packets go through this process.
type wan struct {
	bits  float64
	rtt   time.Duration
	queue time.Duration
	loss  float64
}

func (w wan) link(t testing.TB, a, b *natlab.Namespace) {
	t.Helper()
	var ends [2]*os.File
	for i, n := range []*natlab.Namespace{a, b} {
		must(t, n.Do(func() (err error) {
			ends[i], err = openTun("eth0", 0)
			return err
		}))
		t.Cleanup(func() { ends[i].Close() })
		must(t, n.Run("ip", "addr", "add", fmt.Sprintf("192.0.2.%d/24", 1+i), "dev", "eth0"))
		must(t, n.Run("ip", "link", "set", "eth0", "mtu", "1500", "up"))
	}
	go w.carry(ends[0], ends[1], 1)
	go w.carry(ends[1], ends[0], 2)
}

type due struct {
	at time.Time
	b  []byte
}

// carry carries packets one way until the line is closed.
func (w wan) carry(from, to *os.File, seed uint64) {
	on := make(chan due, 1<<16)
	defer close(on)
	go func() {
		for p := range on {
			time.Sleep(time.Until(p.at))
			_, _ = to.Write(p.b)
		}
	}()
	rng := rand.New(rand.NewPCG(seed, seed))
	var free time.Time // when the line has sent what it has
	for {
		b := make([]byte, 1600)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		if free.Sub(now) > w.queue {
			continue
		}
		free = free.Add(time.Duration(float64(8*n) / w.bits * float64(time.Second)))
		if rng.Float64() >= w.loss {
			on <- due{free.Add(w.rtt / 2), b[:n]}
		}
	}
}

// BenchmarkWAN is bulk over a line of 200 Mbit/s with a round trip of 40 ms that loses one packet in a thousand.
func BenchmarkWAN(b *testing.B) {
	line := wan{bits: 200e6, rtt: 40 * time.Millisecond, queue: 40 * time.Millisecond, loss: 0.001}
	for _, mode := range modes {
		b.Run(mode, func(b *testing.B) { newLab(b, mode, line.link).bulk(b, 1) })
	}
}

// BenchmarkWANRPC is the round trip of a small call beside bulk on that line.
func BenchmarkWANRPC(b *testing.B) {
	line := wan{bits: 200e6, rtt: 40 * time.Millisecond, queue: 40 * time.Millisecond, loss: 0.001}
	for _, mode := range modes {
		b.Run(mode, func(b *testing.B) {
			l := newLab(b, mode, line.link)
			l.load(b, 1)
			l.rpc(b)
		})
	}
}
