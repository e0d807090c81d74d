package accounttest

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain/program/account"
)

// ReadBack checks that each account decodes to its encoded value, and that its decoder refuses another length, another
// head, and accounts of other kinds. Ballots on all subjects are of one kind.
func ReadBack(t *testing.T, of, all []Example) {
	t.Helper()
	for _, a := range of {
		b := a.Of.Marshal()
		if len(b) != a.Size {
			t.Errorf("%s: %d bytes, want %d", a.Name, len(b), a.Size)
		}
		got, err := a.Read(b)
		if err != nil || !bytes.Equal(got.Marshal(), b) {
			t.Errorf("%s: %+v, %v", a.Name, got, err)
		}
		refused := func(name string, b []byte) {
			t.Helper()
			if _, err := a.Read(b); !errors.Is(err, account.ErrAccount) {
				t.Errorf("%s with %s: %v", a.Name, name, err)
			}
		}
		for cut := range b {
			refused("bytes cut off", b[:cut])
		}
		refused("a byte more", append(bytes.Clone(b), 0))
		for _, at := range []int{0, 1, 7} { // kind, version, reserved
			other := bytes.Clone(b)
			other[at] ^= 0x80
			refused("another head", other)
		}
		for _, other := range all {
			if kind(other) != kind(a) {
				refused("the bytes of "+other.Name, other.Of.Marshal())
				if _, err := other.Read(b); !errors.Is(err, account.ErrAccount) {
					t.Errorf("%s reads as %s: %v", a.Name, other.Name, err)
				}
			}
		}
	}
}

// kind is the first word of the name.
func kind(a Example) string {
	kind, _, _ := strings.Cut(a.Name, " ")
	return kind
}

// Fuzz checks that bytes which the reader of the account of that name takes are written again as they were, and that it
// refuses all others with ErrAccount.
func Fuzz(f *testing.F, of []Example, name string) {
	f.Helper()
	for _, a := range of {
		if a.Name != name {
			continue
		}
		f.Add(a.Of.Marshal())
		f.Add([]byte{})
		f.Fuzz(func(t *testing.T, b []byte) {
			got, err := a.Read(b)
			if err != nil {
				if !errors.Is(err, account.ErrAccount) {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(got.Marshal(), b) {
				t.Fatalf("%x comes back as %x", b, got.Marshal())
			}
		})
	}
}
