package drand

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

type vector struct {
	Round      uint64 `json:"round"`
	Randomness string `json:"randomness"`
	Signature  string `json:"signature"`
}

func vectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/quicknet.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []vector
	if err := json.Unmarshal(b, &out); err != nil || len(out) == 0 {
		t.Fatalf("%v, %d rounds", err, len(out))
	}
	return out
}

func signature(t testing.TB, text string) Signature {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != SignatureSize {
		t.Fatalf("%q: %v", text, err)
	}
	return Signature(b)
}

// Rounds that quicknet published.
func TestQuicknet(t *testing.T) {
	t.Parallel()
	n, err := New(market.Quicknet())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors(t) {
		sig := signature(t, v.Signature)
		got, err := n.Verify(v.Round, sig)
		if err != nil || got.String() != v.Randomness {
			t.Errorf("round %d: %v, %s", v.Round, err, got)
		}
		for _, other := range []uint64{0, v.Round - 1, v.Round + 1, 1 << 63} {
			if _, err := n.Verify(other, sig); !errors.Is(err, ErrSignature) {
				t.Errorf("round %d is round %d: %v", v.Round, other, err)
			}
		}
		for i := range sig {
			bad := sig
			bad[i] ^= 1
			if _, err := n.Verify(v.Round, bad); !errors.Is(err, ErrSignature) {
				t.Errorf("round %d with byte %d changed: %v", v.Round, i, err)
			}
		}
	}
	if _, err := n.Verify(1, Signature{}); !errors.Is(err, ErrSignature) {
		t.Error("no signature is one")
	}
	if _, err := n.Verify(1, Signature{0xc0}); !errors.Is(err, ErrSignature) {
		t.Error("the point at infinity is one")
	}
}

func TestBadKeys(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d *market.Drand){
		"zeros":             func(d *market.Drand) { d.Key = market.DrandKey{} },
		"infinity":          func(d *market.Drand) { d.Key = market.DrandKey{0xc0} },
		"not on the curve":  func(d *market.Drand) { d.Key[95]++ },
		"not compressed":    func(d *market.Drand) { d.Key[0] &= 0x7f },
		"beyond the modulo": func(d *market.Drand) { d.Key[0], d.Key[1] = 0x9f, 0xff },
	} {
		d := market.Quicknet()
		change(&d)
		if _, err := New(d); !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func genesis(slots, millis uint64) market.Genesis {
	return market.Genesis{AuditSlots: slots, SlotMillis: millis, AuditBeacon: market.ByDrand, Drand: market.Quicknet()}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	s := NewSchedule(genesis(9000, 400)) // an hour: 1200 rounds, every 75th
	start := market.Quicknet().GenesisTime
	for begin, want := range map[uint64]uint64{0: 75, start: 75, start + 74*3: 75, start + 74*3 + 1: 150, start + 149*3: 150} {
		if got := s.After(begin); got != want {
			t.Errorf("a window that begins at %d has round %d, want %d", begin, got, want)
		}
	}
	if s.Time(1) != start || s.Time(75) != start+74*3 || s.Time(0) != start {
		t.Error("rounds are not when they are")
	}
	if got := s.Era(75*1000, 24); got != (75*1000-1200)/28800*28800 {
		t.Errorf("era %d", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		g := genesis(rapid.Uint64Range(10, 1<<24).Draw(t, "slots"), rapid.Uint64Range(1, 60_000).Draw(t, "millis"))
		g.Drand.Period = rapid.Uint32Range(1, 3600).Draw(t, "period")
		s := NewSchedule(g)
		begin := rapid.Uint64Range(0, 1<<40).Draw(t, "begin")
		within := rapid.Uint64Range(0, 60).Draw(t, "within")
		r := s.After(begin)
		if !s.Drawn(r) || !s.Fits(r, begin, within) || s.Time(r) < begin && begin > g.Drand.GenesisTime {
			t.Fatalf("round %d at %d of a window that begins at %d", r, s.Time(r), begin)
		}
		// What a reader whose clock differs draws, this one takes; and there are few that it takes.
		other := s.After(begin + rapid.Uint64Range(0, within).Draw(t, "off"))
		if !s.Fits(other, begin, within) {
			t.Fatalf("round %d does not fit", other)
		}
		many := uint64(0)
		for r := s.After(begin - min(begin, within)); s.Fits(r, begin, within); r += s.step {
			many++
		}
		if many > 2+2*within/(s.step*s.period) {
			t.Fatalf("%d rounds fit", many)
		}
		if s.Fits(r+1, begin, within) && s.step > 1 || s.Fits(0, begin, within) {
			t.Fatal("a round fits by which nothing is drawn")
		}
		if e := s.Era(r, 24); e > max(r-min(r, s.window), 1) || e < 1 {
			t.Fatalf("era %d of round %d", e, r)
		}
	})
}

func FuzzVerify(f *testing.F) {
	n, err := New(market.Quicknet())
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range vectors(f) {
		sig := signature(f, v.Signature)
		f.Add(v.Round, sig[:])
	}
	known := map[uint64]Signature{}
	for _, v := range vectors(f) {
		known[v.Round] = signature(f, v.Signature)
	}
	f.Fuzz(func(t *testing.T, round uint64, b []byte) {
		if len(b) != SignatureSize {
			return
		}
		got, err := n.Verify(round, Signature(b))
		if err != nil {
			return
		}
		if want, is := known[round]; !is || want != Signature(b) || got == (sign.Hash{}) {
			t.Fatalf("round %d has the signature %x", round, b)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	n, err := New(market.Quicknet())
	if err != nil {
		b.Fatal(err)
	}
	v := vectors(b)[0]
	sig := signature(b, v.Signature)
	for b.Loop() {
		if _, err := n.Verify(v.Round, sig); err != nil {
			b.Fatal(err)
		}
	}
}
