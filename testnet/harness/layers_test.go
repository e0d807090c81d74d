package harness

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
)

// noise is n bytes of a layer.
func noise(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte{byte(n)})).Read(data)
	return data
}

// The layers of an image leave its registry about once for three providers of one job. One that has other bytes than
// the layers' costs little, and every provider ends with the right ones.
func TestImageFromFellows(t *testing.T) {
	t.Parallel()
	const layers, size = 5, 4<<20 + 1
	for name, test := range map[string]struct {
		liar        bool
		least, most int64 // from the registry
	}{
		"all are honest": {false, layers * size, 3 * layers * size / 2},
		"one lies":       {true, layers*size + size, 3 * layers * size},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var all [][]byte
				for i := range layers {
					all = append(all, noise(size+i))
				}
				r := NewRegistry(20*time.Millisecond, append(all, []byte("small"))...)
				n := New(t, Options{Providers: 3, Units: 1, Programs: programs, RTT: 20 * time.Millisecond, Registry: r})
				time.Sleep(3 * time.Second)
				if liar := n.Provider(1); test.liar {
					liar.Engine.spoil = func(ctx context.Context, via runtime.Via, l runtime.Layer) {
						if content := via.Open(ctx, l); content != nil {
							content.Close()
							spoil(t, liar, l)
						}
					}
				}
				b := n.Buyer(0)
				j := b.Wait(b.Submit(b.Container("work", "cpu", 3, "5")).ID, 2*time.Minute)
				n.check(t, b, j, buyer.Succeeded)
				var shared uint64
				for i := range 3 {
					shared += n.Provider(i).Node.Files().Shared()
				}
				sent := r.sent.Load()
				if sent < test.least || sent > test.most || shared == 0 {
					t.Errorf("the registry sent %d bytes for %d, want %d to %d; providers sent %d parts",
						sent, layers*size, test.least, test.most, shared)
				}
			})
		})
	}
}

// spoil changes a layer in the store of a provider.
func spoil(t *testing.T, p *Peer, l runtime.Layer) {
	c, err := workload.CIDOf(sha256.Sum256(p.Engine.registry.layers[l.Digest]))
	if err != nil {
		t.Error(err)
		return
	}
	path, err := p.Blobs.Path(c)
	if err != nil {
		t.Error(err)
		return
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte("evil"), int(l.Size+3)/4)[:l.Size], 0o600); err != nil {
		t.Error(err)
	}
}
