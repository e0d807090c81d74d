package sign_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/starling-network/starling/market/sign"
)

func TestTagsRefused(t *testing.T) {
	t.Parallel()
	for tag, ok := range map[sign.Tag]bool{
		"": false, "starling:": false, "starling:x": true, "starling:1234567": true, "starling:12345678": false,
		"Starling:x": false, "x": false, "starling;x": false, " starling:x": false,
		"starling:a b": false, "starling:\x7f": false, "starling:\x00": false, "starling:é": false, "starling:~": true,
	} {
		if err := tag.Check(); (err == nil) != ok || err != nil && !errors.Is(err, sign.ErrTag) {
			t.Errorf("tag %q: %v", tag, err)
		}
	}
}

func TestNetworksRefused(t *testing.T) {
	t.Parallel()
	for network, ok := range map[string]bool{
		"": false, "a": true, "0": true, "-": true, "a-b-9": true, strings.Repeat("x", 16): true,
		strings.Repeat("x", 17): false, "A": false, "a_b": false, "a.b": false, "a b": false, "é": false,
		"a\x00": false,
	} {
		err := sign.Domain{Network: network}.Check()
		if (err == nil) != ok || err != nil && !errors.Is(err, sign.ErrNetwork) {
			t.Errorf("network %q: %v", network, err)
		}
		if _, err := sign.Seal(sign.Domain{Network: network}, sign.TagOffer, nil,
			sign.NewPrivate([32]byte{1})); (err == nil) != ok {
			t.Errorf("sealed for network %q: %v", network, err)
		}
	}
}

// TestEnvelopeSizes: the bounds are exact, and the payload is a copy.
func TestEnvelopeSizes(t *testing.T) {
	t.Parallel()
	b := make([]byte, sign.EnvelopeOverhead+10)
	for _, c := range []struct {
		size, most int
		ok         bool
	}{
		{0, 10, false}, {sign.EnvelopeOverhead - 1, 10, false}, {sign.EnvelopeOverhead, 0, true},
		{sign.EnvelopeOverhead + 1, 0, false}, {sign.EnvelopeOverhead + 10, 10, true},
		{sign.EnvelopeOverhead + 10, 9, false},
	} {
		e, err := sign.UnmarshalEnvelope(b[:c.size], c.most)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, sign.ErrEnvelopeSize) {
			t.Errorf("%d bytes, a payload of at most %d: %v", c.size, c.most, err)
		}
		if err == nil && len(e.Payload) != c.size-sign.EnvelopeOverhead {
			t.Errorf("%d bytes have a payload of %d", c.size, len(e.Payload))
		}
	}
	e, err := sign.UnmarshalEnvelope(b, 10)
	if err != nil {
		t.Fatal(err)
	}
	if b[sign.EnvelopeOverhead]++; e.Payload[0] != 0 {
		t.Error("the payload changes with the buffer that it was read from")
	}
}

// TestTextRefused: a text that is refused leaves the value as it was.
func TestTextRefused(t *testing.T) {
	t.Parallel()
	key, sig, hash := sign.Key{1}, sign.Signature{2}, sign.Hash{3}
	for _, bad := range []string{
		"", "0", "O", "l", "+", " ", sig.String() + "zz", key.String() + key.String() + key.String(), "11111111",
		strings.Repeat("z", 88), strings.Repeat("1", 89), hash.String()[1:], hash.String() + "0",
		strings.Repeat("g", 64),
	} {
		k, s, h := key, sig, hash
		if err := k.UnmarshalText([]byte(bad)); !errors.Is(err, sign.ErrKeyText) || k != key {
			t.Errorf("key %.20q: %s, %v", bad, k, err)
		}
		if err := s.UnmarshalText([]byte(bad)); !errors.Is(err, sign.ErrSignatureText) || s != sig {
			t.Errorf("signature %.20q: %s, %v", bad, s, err)
		}
		if err := h.UnmarshalText([]byte(bad)); !errors.Is(err, sign.ErrHashText) || h != hash {
			t.Errorf("hash %.20q: %s, %v", bad, h, err)
		}
	}
}

// TestScalarBorder: the highest scalar that may stand in a signature is one below the group order.
func TestScalarBorder(t *testing.T) {
	t.Parallel()
	good, err := sign.NewPrivate([32]byte{7}).Sign([]byte("message"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		add int64
		ok  bool
	}{{-2, true}, {-1, true}, {0, false}, {1, false}, {256, false}} {
		s := good
		copy(s[32:], littleEndian(new(big.Int).Add(groupOrder, big.NewInt(c.add))))
		if err := sign.CheckSignature(s); (err == nil) != c.ok || err != nil && !errors.Is(err, sign.ErrNotCanonical) {
			t.Errorf("order %+d: %v", c.add, err)
		}
	}
	for i := range 32 {
		good[32+i] = 0xff
	}
	if err := sign.CheckSignature(good); !errors.Is(err, sign.ErrNotCanonical) {
		t.Errorf("the highest bytes: %v", err)
	}
}
