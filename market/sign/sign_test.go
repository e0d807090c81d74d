package sign_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

func unhex(t rapid.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// RFC 8032, section 7.1: strictness must not cost an honest signature.
func TestRFC8032Vectors(t *testing.T) {
	t.Parallel()
	for i, v := range []struct{ seed, key, message, signature string }{
		{"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
			"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
			"e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"},
		{"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
			"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
			"92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"},
		{"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
			"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
			"6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"},
		{"833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
			"ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
			"ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
			"dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704"},
	} {
		p := sign.NewPrivate([32]byte(unhex(t, v.seed)))
		k, m, want := sign.Key(unhex(t, v.key)), unhex(t, v.message), sign.Signature(unhex(t, v.signature))
		if p.Key() != k {
			t.Errorf("vector %d: key %x", i, p.Key())
		}
		got, err := p.Sign(m)
		if err != nil || got != want {
			t.Errorf("vector %d: signature %x, %v", i, got, err)
		}
		if err := k.Check(); err != nil {
			t.Errorf("vector %d: %v", i, err)
		}
		if err := sign.Verify(k, m, want); err != nil {
			t.Errorf("vector %d: %v", i, err)
		}
	}
}

// torsion lists every 32-byte string that decodes to one of the eight points of small order: canonical encodings first,
// then those with y ≥ p or with the sign bit set where x is zero.
var torsion = []struct{ name, encoding string }{
	{"identity", "0100000000000000000000000000000000000000000000000000000000000000"},
	{"order 2", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
	{"order 4, x even", "0000000000000000000000000000000000000000000000000000000000000000"},
	{"order 4, x odd", "0000000000000000000000000000000000000000000000000000000000000080"},
	{"order 8, a", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"},
	{"order 8, b", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"},
	{"order 8, c", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"},
	{"order 8, d", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"},
	{"identity, negative zero x", "0100000000000000000000000000000000000000000000000000000000000080"},
	{"order 2, negative zero x", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
	{"identity, y = p+1", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
	{"identity, y = p+1, negative zero x", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
	{"order 4, y = p, x even", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
	{"order 4, y = p, x odd", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
}

func TestSmallOrderRefused(t *testing.T) {
	t.Parallel()
	message := []byte("starling")
	good := sign.NewPrivate([32]byte{1})
	signature, _ := good.Sign(message)
	for _, p := range torsion {
		encoding := unhex(t, p.encoding)
		refused := func(what string, err error) {
			if !errors.Is(err, sign.ErrSmallOrder) && !errors.Is(err, sign.ErrNotCanonical) {
				t.Errorf("%s as %s: %v", p.name, what, err)
			}
		}
		refused("key", sign.Key(encoding).Check())
		refused("verifying key", sign.Verify(sign.Key(encoding), message, signature))
		bad := signature
		copy(bad[:32], encoding)
		refused("R", sign.Verify(good.Key(), message, bad))
		refused("R alone", sign.CheckSignature(bad))
	}
}

// Every y from p to 2^255-1, with both signs, has a second encoding and is refused as key and as R.
func TestNonCanonicalYRefused(t *testing.T) {
	t.Parallel()
	good := sign.NewPrivate([32]byte{1})
	signature, _ := good.Sign(nil)
	for low := 0xed; low <= 0xff; low++ {
		for _, top := range []byte{0x7f, 0xff} {
			encoding := bytes.Repeat([]byte{0xff}, 32)
			encoding[0], encoding[31] = byte(low), top
			if err := sign.Key(encoding).Check(); !errors.Is(err, sign.ErrNotCanonical) {
				t.Errorf("key %x: %v", encoding, err)
			}
			bad := signature
			copy(bad[:32], encoding)
			if err := sign.Verify(good.Key(), nil, bad); !errors.Is(err, sign.ErrNotCanonical) {
				t.Errorf("R %x: %v", encoding, err)
			}
		}
	}
	// One below p is -1, of order 2; two below is an ordinary number, whatever it decodes to.
	encoding := bytes.Repeat([]byte{0xff}, 32)
	encoding[0], encoding[31] = 0xeb, 0x7f
	if err := sign.Key(encoding).Check(); errors.Is(err, sign.ErrNotCanonical) || errors.Is(err, sign.ErrSmallOrder) {
		t.Errorf("p-2: %v", err)
	}
}

var groupOrder, _ = new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)

func littleEndian(n *big.Int) []byte {
	out := n.FillBytes(make([]byte, 32))
	slices.Reverse(out)
	return out
}

// The standard library accepts these two forgeries: they show that the strict checks are needed at all.
func TestForgeriesThatTheStandardLibraryAccepts(t *testing.T) {
	t.Parallel()
	message := []byte("pay the bearer")
	identity := unhex(t, torsion[0].encoding)

	t.Run("identity as key", func(t *testing.T) {
		// With A the identity, S·B = R + k·A holds for R = S·B whatever the message: take S = 0, R = identity.
		forged := append(slices.Clone(identity), make([]byte, 32)...)
		if !ed25519.Verify(identity, message, forged) {
			t.Fatal("the standard library refuses it now: the check may have become superfluous")
		}
		if err := sign.Verify(sign.Key(identity), message, sign.Signature(forged)); !errors.Is(err, sign.ErrSmallOrder) {
			t.Error(err)
		}
	})
	t.Run("identity as R", func(t *testing.T) {
		// The owner of a key can choose r = 0: R is the identity and S = k·a.
		seed := [32]byte{7}
		key := sign.NewPrivate(seed).Key()
		h := sha512.Sum512(seed[:])
		h[0] &= 248
		h[31] = h[31]&127 | 64
		secret := h[:32]
		slices.Reverse(secret)
		kh := sha512.Sum512(slices.Concat(identity, key[:], message))
		k := kh[:]
		slices.Reverse(k)
		s := new(big.Int).Mul(new(big.Int).SetBytes(k), new(big.Int).SetBytes(secret))
		forged := append(slices.Clone(identity), littleEndian(s.Mod(s, groupOrder))...)
		if !ed25519.Verify(key[:], message, forged) {
			t.Fatal("the standard library refuses it now: the check may have become superfluous")
		}
		if err := sign.Verify(key, message, sign.Signature(forged)); !errors.Is(err, sign.ErrSmallOrder) {
			t.Error(err)
		}
	})
}

func TestNonCanonicalScalarRefused(t *testing.T) {
	t.Parallel()
	p := sign.NewPrivate([32]byte{3})
	good, _ := p.Sign([]byte("x"))
	s := slices.Clone(good[32:])
	slices.Reverse(s)
	n := new(big.Int).SetBytes(s)
	for _, bad := range []*big.Int{new(big.Int).Add(n, groupOrder), groupOrder, new(big.Int).Lsh(big.NewInt(1), 255)} {
		forged := good
		copy(forged[32:], littleEndian(bad))
		if err := sign.Verify(p.Key(), []byte("x"), forged); !errors.Is(err, sign.ErrNotCanonical) {
			t.Errorf("S = %v: %v", bad, err)
		}
	}
	edge := good
	copy(edge[32:], littleEndian(new(big.Int).Sub(groupOrder, big.NewInt(1))))
	if err := sign.Verify(p.Key(), []byte("x"), edge); !errors.Is(err, sign.ErrBadSignature) {
		t.Errorf("S = L-1 is canonical and wrong: %v", err)
	}
}

// Keys off the curve, about half of all strings, against the equation itself: x² = (y²-1)/(dy²+1) has a root exactly when
// (y²-1)(dy²+1) is a square mod p (RFC 8032, section 5.1.3).
func TestKeyOffTheCurve(t *testing.T) {
	t.Parallel()
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	d := new(big.Int).ModInverse(big.NewInt(121666), p)
	d.Mul(d, big.NewInt(-121665)).Mod(d, p)
	on := 0
	for i := range 512 {
		k := sign.Key(sign.Sum([]byte{byte(i), byte(i >> 8)}))
		be := slices.Clone(k[:])
		slices.Reverse(be)
		be[0] &= 0x7f
		yy := new(big.Int).SetBytes(be)
		yy.Mul(yy, yy)
		u := new(big.Int).Sub(yy, big.NewInt(1))
		u.Mul(u, yy.Mul(yy, d).Add(yy, big.NewInt(1))).Mod(u, p)
		switch err := k.Check(); {
		case err == nil:
			on++
			if big.Jacobi(u, p) < 0 {
				t.Errorf("key %s is not on the curve and passed", k)
			}
		case !errors.Is(err, sign.ErrNotOnCurve) || big.Jacobi(u, p) >= 0:
			t.Errorf("key %s is on the curve: %v", k, err)
		}
	}
	if on < 192 || on > 320 {
		t.Errorf("%d of 512 strings on the curve, about half expected", on)
	}
	if err := (sign.Key{0: 2}).Check(); !errors.Is(err, sign.ErrNotOnCurve) {
		t.Errorf("y = 2: %v", err)
	}
}

func TestSignVerifyProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seed := [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "seed"))
		message := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "message")
		p := sign.NewPrivate(seed)
		s, err := p.Sign(message)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Key().Check(); err != nil {
			t.Fatal("safety: an honest key is refused", err)
		}
		if err := sign.Verify(p.Key(), message, s); err != nil {
			t.Fatal("liveness: an honest signature is refused", err)
		}
		bit := rapid.IntRange(0, 511).Draw(t, "bit")
		s[bit/8] ^= 1 << (bit % 8)
		if sign.Verify(p.Key(), message, s) == nil {
			t.Fatal("safety: a changed signature passes")
		}
	})
}

func TestPreimageLayout(t *testing.T) {
	t.Parallel()
	d := sign.Domain{Network: "testnet-1", Chain: sign.Hash{0xaa, 31: 0xab}, Program: sign.Key{0xcc, 31: 0xcd}}
	got := d.Preimage(sign.TagVoucher, []byte{1, 2})
	want := "737461726c696e673a766f7563686572" + "aa" + strings.Repeat("00", 30) + "ab" + "cc" + strings.Repeat("00", 30) + "cd" +
		"746573746e65742d3100000000000000" + "0102"
	if hex.EncodeToString(got) != want {
		t.Errorf("preimage %x", got)
	}
	for _, tag := range []sign.Tag{sign.TagOffer, sign.TagOrder, sign.TagQuote, sign.TagHold, sign.TagLease, sign.TagVoucher,
		sign.TagReceipt, sign.TagSupervision, sign.TagRelease, sign.TagWard} {
		if err := tag.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, tag := range []sign.Tag{"", "starling:", "starling:muchtoolong", "other:x", "starling:a b", "starling:\x00"} {
		if !errors.Is(tag.Check(), sign.ErrTag) {
			t.Errorf("tag %q accepted", tag)
		}
	}
	for _, network := range []string{"", "Main", "a_b", "seventeen-letters", "a\x00"} {
		if !errors.Is(sign.Domain{Network: network}.Check(), sign.ErrNetwork) {
			t.Errorf("network %q accepted", network)
		}
	}
}

// A signature for one tag, network, chain or program opens nothing else.
func TestEnvelopeIsBoundToItsDomain(t *testing.T) {
	t.Parallel()
	d := sign.Domain{Network: "net", Chain: sign.Hash{1}, Program: sign.Key{2}}
	e, err := sign.Seal(d, sign.TagOffer, []byte("hello"), sign.NewPrivate([32]byte{9}))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.Open(d, sign.TagOffer); err != nil || string(got) != "hello" {
		t.Fatal(got, err)
	}
	other := e
	other.Payload = []byte("hellp")
	for name, open := range map[string]func() ([]byte, error){
		"tag": func() ([]byte, error) { return e.Open(d, sign.TagOrder) },
		"network": func() ([]byte, error) {
			return e.Open(sign.Domain{Network: "ten", Chain: d.Chain, Program: d.Program}, sign.TagOffer)
		},
		"chain":   func() ([]byte, error) { return e.Open(sign.Domain{Network: "net", Program: d.Program}, sign.TagOffer) },
		"program": func() ([]byte, error) { return e.Open(sign.Domain{Network: "net", Chain: d.Chain}, sign.TagOffer) },
		"payload": func() ([]byte, error) { return other.Open(d, sign.TagOffer) },
	} {
		if _, err := open(); !errors.Is(err, sign.ErrBadSignature) {
			t.Errorf("other %s: %v", name, err)
		}
	}
	if _, err := sign.UnmarshalEnvelope(e.Marshal(), 4); !errors.Is(err, sign.ErrEnvelopeSize) {
		t.Error(err)
	}
	if _, err := sign.UnmarshalEnvelope(e.Marshal()[:95], 4); !errors.Is(err, sign.ErrEnvelopeSize) {
		t.Error(err)
	}
	if _, err := sign.Seal(d, "bad", nil, sign.NewPrivate([32]byte{9})); !errors.Is(err, sign.ErrTag) {
		t.Error(err)
	}
}

func TestKeypairFile(t *testing.T) {
	t.Parallel()
	p := sign.NewPrivate([32]byte{1, 2, 3})
	text := sign.MarshalKeypair(p)
	back, err := sign.ParseKeypair(text)
	if err != nil || back.Key() != p.Key() || back.Seed() != p.Seed() {
		t.Fatal(back, err)
	}
	for _, bad := range []string{"", "{}", "[1,2]", `"AAAA"`, strings.Replace(string(text), "[1,2,3", "[2,2,3", 1),
		strings.Replace(string(text), "[1,2", "[1,258", 1), strings.Replace(string(text), ",0,", ",null,", 1), strings.Repeat(" ", 5000)} {
		if _, err := sign.ParseKeypair([]byte(bad)); !errors.Is(err, sign.ErrKeypair) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	for _, text := range []string{fmt.Sprint(p), fmt.Sprintf("%+v", p), fmt.Sprintf("%#v", p)} {
		if !strings.Contains(text, p.Key().String()) || strings.Contains(text, "1 2 3") {
			t.Errorf("a private key prints as %q", text)
		}
	}
}

func TestTextForms(t *testing.T) {
	t.Parallel()
	type all struct {
		K sign.Key
		S sign.Signature
		H sign.Hash
	}
	in := all{K: sign.Key{1, 31: 2}, S: sign.Signature{3, 63: 4}, H: sign.Hash{5}}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out all
	if err := json.Unmarshal(text, &out); err != nil || out != in {
		t.Fatalf("%s: %+v, %v", text, out, err)
	}
	if (sign.Key{}).String() != "11111111111111111111111111111111" {
		t.Error("the zero key is not Solana's system program")
	}
	for _, bad := range []string{"", "0", "abc", strings.Repeat("1", 100), strings.Repeat("1", 33)} {
		if _, err := sign.ParseKey(bad); !errors.Is(err, sign.ErrKeyText) {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := sign.ParseHash(bad); !errors.Is(err, sign.ErrHashText) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	e, _ := sign.Seal(sign.Domain{Network: "net"}, sign.TagOffer, []byte("hello"), sign.NewPrivate([32]byte{9}))
	f.Add(e.Marshal())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := sign.UnmarshalEnvelope(b, 1024)
		if err != nil {
			return
		}
		if !bytes.Equal(e.Marshal(), b) {
			t.Fatal("decode, encode differ")
		}
		_, _ = e.Open(sign.Domain{Network: "net"}, sign.TagOffer)
	})
}

func FuzzKeypair(f *testing.F) {
	f.Add(sign.MarshalKeypair(sign.NewPrivate([32]byte{1})))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := sign.ParseKeypair(b)
		if err != nil {
			return
		}
		if q, err := sign.ParseKeypair(sign.MarshalKeypair(p)); err != nil || q.Key() != p.Key() {
			t.Fatal(err)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	p, m := sign.NewPrivate([32]byte{1}), make([]byte, 300)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.Sign(m)
	}
}

func BenchmarkVerify(b *testing.B) {
	p, m := sign.NewPrivate([32]byte{1}), make([]byte, 300)
	s, _ := p.Sign(m)
	k := p.Key()
	b.ReportAllocs()
	for b.Loop() {
		if sign.Verify(k, m, s) != nil {
			b.Fatal()
		}
	}
}

func BenchmarkKeyCheck(b *testing.B) {
	k := sign.NewPrivate([32]byte{1}).Key()
	b.ReportAllocs()
	for b.Loop() {
		if k.Check() != nil {
			b.Fatal()
		}
	}
}
