package overlay

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// pair are two members as each sees the other.
func pair(t testing.TB) (a, b *member) {
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
	for _, err := range []error{a.deriveProbeKeys(keys[0], pubs[0]), b.deriveProbeKeys(keys[1], pubs[1])} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

func TestProbesOpenAtTheOtherMemberOnly(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	for _, size := range []int{0, minProbe, datagramOf(DefaultMTU), datagramOf(MaxMTU)} {
		p := a.sealProbe(kindPing, 42, size, size)
		if want := max(size, minProbe); len(p) != want || kindOf(p) != kindProbe {
			t.Fatalf("a probe of %d bytes, kind %d; want %d", len(p), kindOf(p), want)
		}
		kind, id, told, _, ok := b.openProbe(p)
		if !ok || kind != kindPing || id != 42 || told != size {
			t.Fatalf("opened as %d, %d, %d, %t", kind, id, told, ok)
		}
		if _, _, _, _, ok := a.openProbe(p); ok {
			t.Fatal("its sender takes it for the other's: it could be reflected")
		}
		for i := range p {
			bad := bytes.Clone(p)
			bad[i] ^= 1
			if _, _, _, _, ok := b.openProbe(bad); ok {
				t.Fatalf("opened with byte %d changed", i)
			}
		}
		if _, _, _, _, ok := b.openProbe(p[:len(p)-1]); ok {
			t.Fatal("opened though truncated")
		}
	}
}

func TestDatagramsOfPaddedPacketsFitThePath(t *testing.T) {
	t.Parallel()
	for mtu, want := range map[int]int{1168: 1200, 1280: 1312, 1281: 1328, 1400: 1440, 1420: 1452} {
		if got := datagramOf(mtu); got != want {
			t.Errorf("MTU %d: %d, want %d", mtu, got, want)
		}
	}
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

func TestCallsTellAddresses(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	told := []netip.AddrPort{addrPort("203.0.113.1:4001"), addrPort("[fd00::1]:4001"), addrPort("10.0.0.1:1")}
	for _, own := range [][]netip.AddrPort{nil, told, slices.Repeat(told[:1], 3*maxTold)} {
		call := a.sealCall(kindCall, 0, own)
		if answer := b.sealCall(kindCalled, 0, told); len(answer) > len(call) {
			t.Errorf("a call of %d bytes is answered by %d", len(call), len(answer))
		}
		kind, _, _, more, ok := b.openProbe(call)
		if got, want := readCall(more), slices.Compact(own); !ok || kind != kindCall || !slices.Equal(got, want) {
			t.Errorf("told %v, got %v", want, got)
		}
	}
	// Nothing is sent to addresses that are nobody's, or everybody's.
	bad := []netip.AddrPort{addrPort("0.0.0.0:1"), addrPort("255.255.255.255:1"), addrPort("224.0.0.1:1"), addrPort("[ff02::1]:1"), addrPort("[::]:1"), addrPort("10.0.0.1:0")}
	if _, _, _, more, _ := b.openProbe(a.sealCall(kindCall, 0, bad)); len(readCall(more)) != 0 {
		t.Error("taken: ", readCall(more))
	}
}

func FuzzCall(f *testing.F) {
	f.Add(appendAddr([]byte{1}, addrPort("203.0.113.1:4001")))
	f.Add(appendAddr(appendAddr([]byte{2}, addrPort("[fd00::1]:4001")), addrPort("[fd00::1]:4001")))
	f.Add([]byte{255, 1, 2, 3})
	a, b := pair(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		told := readCall(p)
		if len(told) > maxTold {
			t.Fatalf("%d addresses", len(told))
		}
		_, _, _, more, ok := b.openProbe(a.sealCall(kindCall, 0, told))
		if again := readCall(more); !ok || !slices.Equal(again, told) {
			t.Fatalf("%v, again %v", told, again)
		}
	})
}

func FuzzProbe(f *testing.F) {
	a, b := pair(f)
	f.Add(a.sealProbe(kindPing, 1, 0, 0))
	f.Add(a.sealProbe(kindPong, 1<<63, 1452, 1452))
	f.Add(b.sealProbe(kindPing, 1, 0, 0))
	f.Fuzz(func(t *testing.T, p []byte) {
		if kind, id, told, _, ok := b.openProbe(p); ok {
			// Only what a sealed opens; the corpus has such.
			if again := a.sealProbe(kind, id, told, len(p)); len(again) != len(p) {
				t.Fatalf("%d bytes, sealed again %d", len(p), len(again))
			}
		}
	})
}
