package cli

import (
	"bytes"
	"testing"
)

func TestPrefixed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &Prefixed{W: &out, Prefix: "[3] "}
	for _, piece := range []string{"one", " line\ntwo\n\nth", "ree"} {
		if n, err := p.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "[3] one line\n[3] two\n[3] \n[3] three\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
	out.Reset()
	if _, err := p.Write(bytes.Repeat([]byte("x"), 3*maxPrefixed)); err != nil {
		t.Fatal(err)
	}
	if len(p.buf) >= maxPrefixed {
		t.Errorf("%d bytes of a line without an end are kept", len(p.buf))
	}
}
