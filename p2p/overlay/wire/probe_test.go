package wire

import (
	"bytes"
	"crypto/ecdh"
	"net/netip"
	"slices"
	"testing"
)

// pairs are the keys of two members as each has them.
func pairs(t testing.TB) (a, b Pair) {
	t.Helper()
	keys := [2][32]byte{{1: 1, 31: 64}, {1: 2, 31: 64}}
	var pubs [2][32]byte
	for i := range keys {
		key, err := ecdh.X25519().NewPrivateKey(keys[i][:])
		if err != nil {
			t.Fatal(err)
		}
		pubs[i] = [32]byte(key.PublicKey().Bytes())
	}
	a, err := NewPair(keys[0], pubs[0], pubs[1])
	if err == nil {
		b, err = NewPair(keys[1], pubs[1], pubs[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestProbesOpenAtTheOtherMemberOnly(t *testing.T) {
	t.Parallel()
	a, b := pairs(t)
	for _, size := range []int{0, MinProbe, DatagramOf(DefaultMTU), DatagramOf(MaxMTU)} {
		p := a.Seal(Ping, 42, size, nil, size)
		if want := max(size, MinProbe); len(p) != want || KindOf(p) != Probe {
			t.Fatalf("a probe of %d bytes, kind %d; want %d", len(p), KindOf(p), want)
		}
		kind, id, told, _, ok := b.Open(p)
		if !ok || kind != Ping || id != 42 || told != size {
			t.Fatalf("opened as %d, %d, %d, %t", kind, id, told, ok)
		}
		if _, _, _, _, ok := a.Open(p); ok {
			t.Fatal("its sender takes it for the other's: it could be reflected")
		}
		for i := range p {
			bad := bytes.Clone(p)
			bad[i] ^= 1
			if _, _, _, _, ok := b.Open(bad); ok {
				t.Fatalf("opened with byte %d changed", i)
			}
		}
		if _, _, _, _, ok := b.Open(p[:len(p)-1]); ok {
			t.Fatal("opened though truncated")
		}
	}
}

func TestDatagramsOfPaddedPacketsFitThePath(t *testing.T) {
	t.Parallel()
	for mtu, want := range map[int]int{1168: 1200, 1280: 1312, 1281: 1328, 1400: 1440, 1420: 1452} {
		if got := DatagramOf(mtu); got != want {
			t.Errorf("MTU %d: %d, want %d", mtu, got, want)
		}
	}
}

func TestCallsTellAddresses(t *testing.T) {
	t.Parallel()
	a, b := pairs(t)
	told := []netip.AddrPort{addrPort("203.0.113.1:4001"), addrPort("[fd00::1]:4001"), addrPort("10.0.0.1:1")}
	for _, own := range [][]netip.AddrPort{nil, told, slices.Repeat(told[:1], 3*MaxTold)} {
		call := a.SealCall(Call, 0, own)
		if answer := b.SealCall(Called, 0, told); len(answer) > len(call) {
			t.Errorf("a call of %d bytes is answered by %d", len(call), len(answer))
		}
		kind, _, _, more, ok := b.Open(call)
		if got, want := ReadCall(more), slices.Compact(own); !ok || kind != Call || !slices.Equal(got, want) {
			t.Errorf("told %v, got %v", want, got)
		}
	}
	// Nothing is sent to addresses that are nobody's, or everybody's.
	bad := []netip.AddrPort{addrPort("0.0.0.0:1"), addrPort("255.255.255.255:1"), addrPort("224.0.0.1:1"), addrPort("[ff02::1]:1"), addrPort("[::]:1"), addrPort("10.0.0.1:0")}
	if _, _, _, more, _ := b.Open(a.SealCall(Call, 0, bad)); len(ReadCall(more)) != 0 {
		t.Error("taken: ", ReadCall(more))
	}
}

func FuzzCall(f *testing.F) {
	f.Add(AppendAddr([]byte{1}, addrPort("203.0.113.1:4001")))
	f.Add(AppendAddr(AppendAddr([]byte{2}, addrPort("[fd00::1]:4001")), addrPort("[fd00::1]:4001")))
	f.Add([]byte{255, 1, 2, 3})
	a, b := pairs(f)
	f.Fuzz(func(t *testing.T, p []byte) {
		told := ReadCall(p)
		if len(told) > MaxTold {
			t.Fatalf("%d addresses", len(told))
		}
		_, _, _, more, ok := b.Open(a.SealCall(Call, 0, told))
		if again := ReadCall(more); !ok || !slices.Equal(again, told) {
			t.Fatalf("%v, again %v", told, again)
		}
	})
}

func FuzzProbe(f *testing.F) {
	a, b := pairs(f)
	f.Add(a.Seal(Ping, 1, 0, nil, 0))
	f.Add(a.Seal(Pong, 1<<63, 1452, nil, 1452))
	f.Add(b.Seal(Ping, 1, 0, nil, 0))
	f.Fuzz(func(t *testing.T, p []byte) {
		if kind, id, told, _, ok := b.Open(p); ok {
			// Only what a sealed opens; the corpus has such.
			if again := a.Seal(kind, id, told, nil, len(p)); len(again) != len(p) {
				t.Fatalf("%d bytes, sealed again %d", len(p), len(again))
			}
		}
	})
}
