package fields_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/market/sign"
)

// TestReadsBack: fields come back as they were written, little-endian, and nothing is left; cut off anywhere they fail.
func TestReadsBack(t *testing.T) {
	t.Parallel()
	want := []byte{1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8, 1, 0}
	b := fields.Data{}.U8(1).U16(0x0203).U32(0x04050607).U64(0x08090a0b0c0d0e0f).Bool(true).Bool(false)
	if !bytes.Equal(b, want) {
		t.Errorf("%x, want %x", b, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		var k sign.Key
		var h sign.Hash
		copy(k[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
		copy(h[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash"))
		u8, u16 := rapid.Uint8().Draw(t, "u8"), rapid.Uint16().Draw(t, "u16")
		u32, u64 := rapid.Uint32().Draw(t, "u32"), rapid.Uint64().Draw(t, "u64")
		text := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "bytes")
		b := fields.Data{}.U8(u8).U16(u16).U32(u32).U64(u64).Key(k).Hash(h).Zeros(3).Bytes(text...)
		r := &fields.Reader{Rest: b}
		if r.U8() != u8 || r.U16() != u16 || r.U32() != u32 || r.U64() != u64 || r.Key() != k || r.Hash() != h {
			t.Fatalf("%x comes back as another", b)
		}
		if r.Zeros(3); !bytes.Equal(r.Take(len(text)), text) || !r.Done() {
			t.Fatalf("%x: bad %v, %x left", b, r.Bad, r.Rest)
		}
		n := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		r = &fields.Reader{Rest: b[:n]}
		r.Take(len(b))
		if r.Done() || r.U64() != 0 || r.Key() != (sign.Key{}) {
			t.Fatalf("%d of %d bytes are enough", n, len(b))
		}
	})
}

// TestReaderFails: reserved bytes must be zero, fields must be there, and one failure stays.
func TestReaderFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		read func(*fields.Reader)
		ok   bool
	}{
		"zeros":         {func(r *fields.Reader) { r.Zeros(2) }, true},
		"another":       {func(r *fields.Reader) { r.Zeros(3) }, false},
		"all":           {func(r *fields.Reader) { r.Take(3) }, true},
		"more than all": {func(r *fields.Reader) { r.Take(4) }, false},
		"a failure":     {func(r *fields.Reader) { r.Fail(true); r.Fail(false) }, false},
	} {
		r := &fields.Reader{Rest: []byte{0, 0, 1}}
		if c.read(r); r.Bad == c.ok {
			t.Errorf("%s: bad %v", name, r.Bad)
		}
		if r.Rest = []byte{7}; !c.ok && r.U8() != 0 {
			t.Errorf("%s: a field follows", name)
		}
	}
}
