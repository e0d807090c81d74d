// Package verifytest has checks of signed layouts that the tests of several packages share.
package verifytest

import (
	"bytes"
	"testing"
)

// EveryByteCounts fails the test unless check accepts a layout, and refuses it with any one byte changed.
func EveryByteCounts(t testing.TB, name string, layout []byte, check func([]byte) error) {
	t.Helper()
	if err := check(layout); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for at := range layout {
		for _, x := range []byte{0x01, 0x80, 0xff} {
			b := bytes.Clone(layout)
			b[at] ^= x
			if check(b) == nil {
				t.Errorf("%s with byte %d changed by %#x is accepted", name, at, x)
			}
		}
	}
}
