package livecmd

import (
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestDetachable(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]struct {
		rest string
		left bool
	}{
		"ls\r":                {"ls\r", false},
		"ls\x10\x11more":      {"ls", true},
		"\x10\x11":            {"", true},
		"\x10\x10\x11":        {"\x10", true},
		"up\x10\x10down":      {"up\x10\x10down", false},
		"\x11\x10x\x10":       {"\x11\x10x\x10", false}, // held until the end
		"a\x10b\x11c\x10\x11": {"a\x10b\x11c", true},
	} {
		for _, one := range []bool{false, true} {
			left := false
			var in io.Reader = &endless{text: keys}
			if one {
				in = iotest.OneByteReader(in)
			}
			got, err := io.ReadAll(&detachable{in: in, leave: func() { left = true }})
			if string(got) != want.rest || left != want.left || errors.Is(err, errDetached) != want.left {
				t.Errorf("%q: %q, %v, %v", keys, got, left, err)
			}
		}
	}
}

// endless is keys without an end of input, only an error.
type endless struct{ text string }

func (e *endless) Read(p []byte) (int, error) {
	if e.text == "" {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, e.text)
	e.text = e.text[n:]
	return n, nil
}
