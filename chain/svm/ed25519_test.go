package svm_test

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// signedBy is a message with the signatures of n keys.
func signedBy(n int, message []byte) svm.Signed {
	s := svm.Signed{Message: message}
	for i := range n {
		k := sign.NewPrivate([32]byte{byte(i + 1)})
		sig, err := k.Sign(message)
		if err != nil {
			panic(err)
		}
		s.Keys, s.Signatures = append(s.Keys, k.Key()), append(s.Signatures, sig)
	}
	return s
}

// TestSignedLayout reads the instruction as the precompile does, by the offsets in it.
func TestSignedLayout(t *testing.T) {
	t.Parallel()
	for n := 1; n <= svm.MaxSignatures; n++ {
		s := signedBy(n, []byte("a message"))
		in := s.Instruction()
		if in.Program != svm.Ed25519Program || len(in.Accounts) != 0 || in.Data[0] != byte(n) || in.Data[1] != 0 {
			t.Fatalf("%d keys: %+v", n, in)
		}
		end := 0
		for i := range n {
			var e [7]uint16
			for j := range e {
				e[j] = binary.LittleEndian.Uint16(in.Data[2+14*i+2*j:])
			}
			if e[1] != 0xffff || e[3] != 0xffff || e[6] != 0xffff {
				t.Errorf("%d keys, entry %d names another instruction: %x", n, i, e)
			}
			if got := sign.Signature(in.Data[e[0]:]); got != s.Signatures[i] {
				t.Errorf("%d keys, signature %d: %x", n, i, got)
			}
			if got := sign.Key(in.Data[e[2]:]); got != s.Keys[i] {
				t.Errorf("%d keys, key %d: %s", n, i, got)
			}
			if got := in.Data[e[4] : e[4]+e[5]]; !bytes.Equal(got, s.Message) {
				t.Errorf("%d keys, message of entry %d: %q", n, i, got)
			}
			end = int(e[4] + e[5])
		}
		if end != len(in.Data) {
			t.Errorf("%d keys: %d bytes after the message", n, len(in.Data)-end)
		}
	}
}

// TestSignedReadsBack: any keys, signatures and message come back.
func TestSignedReadsBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := svm.Signed{Keys: keys(t, "keys", 1, svm.MaxSignatures), Message: rapid.SliceOf(rapid.Byte()).Draw(t, "message")}
		for range s.Keys {
			s.Signatures = append(s.Signatures,
				sign.Signature(rapid.SliceOfN(rapid.Byte(), sign.SignatureSize, sign.SignatureSize).Draw(t, "signature")))
		}
		got, ok := svm.ParseSigned(s.Instruction())
		if !ok || !reflect.DeepEqual(got.Keys, s.Keys) || !reflect.DeepEqual(got.Signatures, s.Signatures) ||
			!bytes.Equal(got.Message, s.Message) {
			t.Fatalf("%+v comes back as %+v, %v", s, got, ok)
		}
	})
}

// TestParseSignedRefuses: only the one form passes.
func TestParseSignedRefuses(t *testing.T) {
	t.Parallel()
	good := signedBy(2, []byte("m")).Instruction()
	const head = 2 + 2*14 // count, zero and entries: no byte of it can be another
	refused := func(name string, change func(*svm.Instruction)) {
		t.Helper()
		in := svm.Instruction{Program: good.Program, Data: bytes.Clone(good.Data)}
		change(&in)
		if s, ok := svm.ParseSigned(in); ok {
			t.Errorf("%s passes: %+v", name, s)
		}
	}
	for i := range head {
		refused("another byte in the head", func(in *svm.Instruction) { in.Data[i] ^= 1 })
	}
	for n := range head + 2*(sign.KeySize+sign.SignatureSize) {
		refused("cut off", func(in *svm.Instruction) { in.Data = in.Data[:n] })
	}
	refused("a longer message", func(in *svm.Instruction) { in.Data = append(in.Data, 0) })
	refused("another program", func(in *svm.Instruction) { in.Program = key(1) })
	refused("an account", func(in *svm.Instruction) { in.Accounts = []svm.Meta{svm.Reads(key(1))} })
	refused("no data", func(in *svm.Instruction) { in.Data = nil })
	refused("no keys", func(in *svm.Instruction) { in.Data = svm.Signed{Message: []byte("m")}.Instruction().Data })
	refused("too many keys", func(in *svm.Instruction) {
		in.Data = signedBy(svm.MaxSignatures+1, []byte("m")).Instruction().Data
	})
	refused("a message that no size can name", func(in *svm.Instruction) {
		in.Data = append(in.Data, make([]byte, 1<<16)...)
	})
}

// TestVerified: all signatures must be good, and as many as keys.
func TestVerified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*svm.Signed)
		want   bool
	}{
		"good":               {func(*svm.Signed) {}, true},
		"another message":    {func(s *svm.Signed) { s.Message = []byte("n") }, false},
		"another key":        {func(s *svm.Signed) { s.Keys[2] = s.Keys[0] }, false},
		"another signature":  {func(s *svm.Signed) { s.Signatures[1][0] ^= 1 }, false},
		"turned":             {func(s *svm.Signed) { s.Keys[0], s.Keys[1] = s.Keys[1], s.Keys[0] }, false},
		"a signature less":   {func(s *svm.Signed) { s.Signatures = s.Signatures[:2] }, false},
		"a key less":         {func(s *svm.Signed) { s.Keys = s.Keys[:2] }, false},
		"nobody":             {func(s *svm.Signed) { s.Keys, s.Signatures = nil, nil }, false},
		"the identity point": {func(s *svm.Signed) { s.Keys[0] = sign.Key{1} }, false},
		"the first two":      {func(s *svm.Signed) { s.Keys, s.Signatures = s.Keys[:2], s.Signatures[:2] }, true},
	} {
		s := signedBy(3, []byte("m"))
		c.change(&s)
		if got := s.Verified(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func FuzzSigned(f *testing.F) {
	f.Add(svm.Signed{Keys: []sign.Key{key(1), key(2)}, Signatures: make([]sign.Signature, 2), Message: []byte("message")}.Instruction().Data)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, ok := svm.ParseSigned(svm.Instruction{Program: svm.Ed25519Program, Data: b})
		if ok && !bytes.Equal(s.Instruction().Data, b) {
			t.Fatalf("%x comes back as %x", b, s.Instruction().Data)
		}
	})
}
