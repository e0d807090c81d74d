package overlay

import (
	"testing"
	"time"

	"github.com/starling-network/starling/p2p/overlay/wire"
)

// members are two members as each sees the other.
func members(t testing.TB) (a, b *member) {
	t.Helper()
	keys := [2]PrivateKey{{1: 1, 31: 64}, {1: 2, 31: 64}}
	var pubs [2]PublicKey
	for i := range keys {
		var err error
		if pubs[i], err = keys[i].Public(); err != nil {
			t.Fatal(err)
		}
	}
	a, b = &member{Member: Member{Key: pubs[1]}}, &member{Member: Member{Key: pubs[0]}}
	for i, m := range []*member{a, b} {
		var err error
		if m.keys, err = wire.NewPair(keys[i], pubs[i], m.Key); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

func TestOnlyAClearlyFasterPathIsBetter(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		rtt, than time.Duration
		want      bool
	}{{ms / 3, 20 * ms, true}, {9 * ms, 10 * ms, false}, {7 * ms, 10 * ms, true}, {ms / 10, ms / 4, false}, {10 * ms, 10 * ms, false}} {
		if got := better(c.rtt, c.than); got != c.want {
			t.Errorf("%s after %s: %t", c.rtt, c.than, got)
		}
	}
}
