package sign_test

import (
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"filippo.io/edwards25519"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/market/sign"
)

// crooked is a key with a part of small order, and signatures by who knows its secret.
type crooked struct {
	key    sign.Key
	secret *edwards25519.Scalar
}

// small is the generator of the eight points of small order, taken so many times.
func small(t rapid.TB, n int) *edwards25519.Point {
	g, err := new(edwards25519.Point).SetBytes(unhex(t, torsion[4].encoding))
	if err != nil {
		t.Fatal(err)
	}
	sum := edwards25519.NewIdentityPoint()
	for range n {
		sum.Add(sum, g)
	}
	return sum
}

func scalarOf(t rapid.TB, seed uint64) *edwards25519.Scalar {
	h := sha512.Sum512(binary.BigEndian.AppendUint64(nil, seed))
	s, err := new(edwards25519.Scalar).SetUniformBytes(h[:])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newCrooked(t rapid.TB, seed uint64, torsion int) crooked {
	c := crooked{secret: scalarOf(t, seed)}
	a := new(edwards25519.Point).ScalarBaseMult(c.secret)
	c.key = sign.Key(a.Add(a, small(t, torsion)).Bytes())
	return c
}

// sign makes a signature whose R has a part of small order. It is good where that part and k times the key's cancel.
func (c crooked) sign(t rapid.TB, message []byte, seed uint64, torsion int) sign.Signature {
	r := scalarOf(t, seed)
	point := new(edwards25519.Point).ScalarBaseMult(r)
	point.Add(point, small(t, torsion))
	h := sha512.New()
	h.Write(point.Bytes())
	h.Write(c.key[:])
	h.Write(message)
	k, err := new(edwards25519.Scalar).SetUniformBytes(h.Sum(nil))
	if err != nil {
		t.Fatal(err)
	}
	return sign.Signature(append(point.Bytes(), new(edwards25519.Scalar).MultiplyAdd(k, c.secret, r).Bytes()...))
}

// agree has both ways of checking say the same, error and all, and reports whether the signature is good.
func agree(t rapid.TB, v *sign.Verifier, key sign.Key, message []byte, s sign.Signature) bool {
	one, many := sign.Verify(key, message, s), v.Verify(message, s)
	if (one == nil) != (many == nil) || one != nil && one.Error() != many.Error() {
		t.Fatalf("safety: key %s, signature %x: one by one %v, with multiples %v", key, s, one, many)
	}
	for _, is := range []error{sign.ErrSmallOrder, sign.ErrNotCanonical, sign.ErrBadSignature} {
		if errors.Is(one, is) != errors.Is(many, is) {
			t.Fatalf("safety: %v and %v", one, many)
		}
	}
	return one == nil
}

// warm is a Verifier that has made its multiples.
func warm(key sign.Key) *sign.Verifier {
	v := sign.NewVerifier(key)
	for range 8 {
		_ = v.Verify(nil, sign.Signature{})
	}
	return v
}

// TestVerifierProperty: a Verifier decides as Verify does, whatever is signed, by whom, and however it is spoilt.
func TestVerifierProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCrooked(t, rapid.Uint64().Draw(t, "key"), rapid.IntRange(0, 7).Draw(t, "torsion of the key"))
		if rapid.Bool().Draw(t, "any key") {
			c.key = sign.Key(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "bytes"))
		}
		v := sign.NewVerifier(c.key)
		for range rapid.IntRange(1, 10).Draw(t, "signatures") {
			message := rapid.SliceOf(rapid.Byte()).Draw(t, "message")
			s := c.sign(t, message, rapid.Uint64().Draw(t, "r"), rapid.IntRange(0, 7).Draw(t, "torsion of R"))
			if rapid.Bool().Draw(t, "spoilt") {
				s[rapid.IntRange(0, 63).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			}
			agree(t, v, c.key, message, s)
		}
	})
}

// Signatures with parts of small order that cancel are good both ways, those where they do not are bad both ways: the check is not up to
// torsion and not by chance.
func TestVerifierIsStrict(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	good, bad := 0, 0
	for key := range 8 {
		c := newCrooked(t, rng.Uint64(), key)
		v := warm(c.key)
		for range 20 {
			for r := range 8 {
				s := c.sign(t, []byte("pay the bearer"), rng.Uint64(), r)
				if is := agree(t, v, c.key, []byte("pay the bearer"), s); is {
					good++
				} else if bad++; key == 0 && r == 0 {
					t.Error("an honest signature is refused")
				}
			}
		}
	}
	if good < 100 || bad < 800 {
		t.Errorf("%d good, %d bad: the test tries nothing", good, bad)
	}
	for _, p := range torsion {
		key := sign.Key(unhex(t, p.encoding))
		v := warm(key)
		for seed := range uint64(4) {
			agree(t, v, key, nil, newCrooked(t, seed, 0).sign(t, nil, seed, 0))
			agree(t, v, key, nil, sign.Signature(append(unhex(t, p.encoding), make([]byte, 32)...)))
		}
	}
}

// The vectors of RFC 8032 and what the standard library signs are good with multiples too.
func TestVerifierTakesHonestSignatures(t *testing.T) {
	t.Parallel()
	for seed := range 16 {
		p := sign.NewPrivate([32]byte{byte(seed)})
		v := sign.NewVerifier(p.Key())
		for n := range 40 {
			message := make([]byte, n)
			s, _ := p.Sign(message)
			if !ed25519.Verify(ed25519.PublicKey(keyBytes(p)), message, s[:]) || !agree(t, v, p.Key(), message, s) {
				t.Fatalf("seed %d, message of %d bytes: refused", seed, n)
			}
		}
	}
}

func keyBytes(p sign.Private) []byte { k := p.Key(); return k[:] }

// BenchmarkVerifier checks 1000 signatures of one key, the making of the multiples counted.
func BenchmarkVerifier(b *testing.B) {
	p := sign.NewPrivate([32]byte{1})
	preimage := make([]byte, 388)
	s, _ := p.Sign(preimage)
	b.ReportAllocs()
	for b.Loop() {
		v := sign.NewVerifier(p.Key())
		for range 1000 {
			if err := v.Verify(preimage, s); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/signature")
}
