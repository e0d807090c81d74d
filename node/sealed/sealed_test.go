package sealed_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/sealed"
)

func TestSealOpen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := sign.NewPrivate([32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "seed")))
		plain := rapid.SliceOfN(rapid.Byte(), 0, 500).Draw(t, "plain")
		p := sealed.Purpose{Network: "test-1", What: "lease", ID: rapid.String().Draw(t, "id")}
		box, err := sealed.Seal(key.Key(), p, plain)
		if err != nil {
			t.Fatal(err)
		}
		if len(box) != len(plain)+sealed.Overhead {
			t.Fatalf("box of %d bytes for %d", len(box), len(plain))
		}
		if len(plain) > 15 && bytes.Contains(box, plain) {
			t.Fatal("the box shows what it holds")
		}
		got, err := sealed.Open(key, p, box)
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("opened %x, %v", got, err)
		}
		changed := bytes.Clone(box)
		changed[rapid.IntRange(0, len(box)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if _, err := sealed.Open(key, p, changed); !errors.Is(err, sealed.ErrSealed) {
			t.Fatalf("a changed box: %v", err)
		}
	})
}

func TestSealedForOneOnly(t *testing.T) {
	t.Parallel()
	a, b := sign.NewPrivate([32]byte{1}), sign.NewPrivate([32]byte{2})
	p := sealed.Purpose{Network: "test-1", What: "lease", ID: "x"}
	box, err := sealed.Seal(a.Key(), p, []byte("token"))
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() ([]byte, error){
		"another key": func() ([]byte, error) { return sealed.Open(b, p, box) },
		"another lease": func() ([]byte, error) {
			return sealed.Open(a, sealed.Purpose{Network: "test-1", What: "lease", ID: "y"}, box)
		},
		"another use": func() ([]byte, error) {
			return sealed.Open(a, sealed.Purpose{Network: "test-1", What: "job", ID: "x"}, box)
		},
		"another network": func() ([]byte, error) {
			return sealed.Open(a, sealed.Purpose{Network: "test-2", What: "lease", ID: "x"}, box)
		},
		"shifted fields": func() ([]byte, error) {
			return sealed.Open(a, sealed.Purpose{Network: "test-1l", What: "ease", ID: "x"}, box)
		},
		"nothing": func() ([]byte, error) { return sealed.Open(a, p, nil) },
		"cut":     func() ([]byte, error) { return sealed.Open(a, p, box[:len(box)-1]) },
		"version": func() ([]byte, error) { return sealed.Open(a, p, append([]byte{2}, box[1:]...)) },
	} {
		if _, err := open(); !errors.Is(err, sealed.ErrSealed) {
			t.Errorf("%s: %v, want ErrSealed", name, err)
		}
	}
	if _, err := sealed.Seal(sign.Key{}, p, nil); err == nil {
		t.Error("sealed to a key of small order")
	}
	if _, err := sealed.Seal(a.Key(), p, make([]byte, sealed.MaxPlain+1)); !errors.Is(err, sealed.ErrTooLarge) {
		t.Errorf("too much: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	key := sign.NewPrivate([32]byte{1})
	p := sealed.Purpose{Network: "test-1", What: "job", ID: "x"}
	// Fixed, because every process of the fuzzer must know the same box; and so a test vector.
	good, err := hex.DecodeString("0180969f1126d398413c2fd3029fb12aa369227b0beec76d3242e9e80e324cf8280ae9d6acb42f4f520dfe4d474eed659048e3712e6b")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		plain, err := sealed.Open(key, p, b)
		if (err == nil) != bytes.Equal(b, good) {
			t.Fatalf("opened %q from %x: %v", plain, b, err)
		}
	})
}
