package tun

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	wgtun "golang.zx2c4.com/wireguard/tun"
	"pgregory.net/rapid"
)

// A file that is no TUN is refused and closed.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(f); !errors.Is(err, ErrNotTUN) {
		t.Errorf("a plain file: %v", err)
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file is open: %v", err)
	}
}

// written keeps the packets that are written, and fails after some.
type written struct {
	wgtun.Device
	packets [][]byte
	most    int
	left    int // writes until one fails
}

var errFull = errors.New("full")

func (w *written) Write(bufs [][]byte, offset int) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errFull
	}
	w.most = max(w.most, len(bufs))
	for _, b := range bufs {
		w.packets = append(w.packets, bytes.Clone(b[offset:]))
	}
	return len(bufs), nil
}

// TestInject: all packets are written in order, in batches that the TUN takes, with room before each; after an error
// the next call writes nothing of the one before.
func TestInject(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &written{left: 1 << 20}
		tun := &TUN{Native: w}
		for range rapid.IntRange(1, 4).Draw(t, "calls") {
			var packets [][]byte
			for i := range rapid.IntRange(0, 3*batchSize).Draw(t, "packets") {
				packets = append(packets, bytes.Repeat([]byte{byte(i)}, 20+i%50))
			}
			if rapid.Bool().Draw(t, "fails") {
				w.left = rapid.IntRange(0, 1).Draw(t, "writes")
			}
			w.packets = nil
			err := tun.Inject(packets)
			want := packets
			if err != nil {
				if !errors.Is(err, errFull) {
					t.Fatal(err)
				}
				want = packets[:len(w.packets)]
			}
			if !slices.EqualFunc(w.packets, want, bytes.Equal) || w.most > batchSize {
				t.Fatalf("%d packets are written, %d at once, want %d: %v", len(w.packets), w.most, len(want), err)
			}
			w.left = 1 << 20
		}
	})
}
