package live

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func FuzzReader(f *testing.F) {
	var all []byte
	for _, fr := range []Frame{
		{Stdout, []byte("hello")}, {Stdout, nil}, {Stderr, []byte("oh")}, {Stdin, []byte("in")}, {EOF, nil}, {Resize, []byte{0, 24, 0, 80}},
		{Exit, []byte{0, 0, 0, 7}}, {Failed, []byte("no such program")},
	} {
		b := Append(nil, fr)
		f.Add(b)
		all = append(all, b...)
	}
	f.Add(all)
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{1, 1, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		var again []byte
		for {
			fr, err := r.Next()
			if err != nil {
				if errors.Is(err, io.EOF) && !bytes.Equal(again, b) {
					t.Fatal("decoded and encoded again it is something else")
				}
				if !errors.Is(err, io.EOF) && !errors.Is(err, ErrFrame) {
					t.Fatal(err)
				}
				break
			}
			if len(fr.Body) > MaxBody {
				t.Fatalf("%d bytes", len(fr.Body))
			}
			switch fr.Kind {
			case Resize:
				fr.Size()
			case Exit:
				fr.Code()
			}
			again = Append(again, fr)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatal("what was decoded is not the beginning of what came")
		}
	})
}

func TestWriter(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := NewWriter(&b)
	big := bytes.Repeat([]byte("x"), MaxBody+100)
	for _, err := range []error{
		w.Write(Stdout, nil), w.Resize(24, 80), w.Exit(-1), w.Fail("no\x1b[2J such\nprogram " + strings.Repeat("é", maxText)), w.Write(EOF, nil),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if n, err := w.Stream(Stderr).Write(big); n != len(big) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := w.Write(Stdout, big); !errors.Is(err, ErrFrame) {
		t.Errorf("too large: %v", err)
	}
	if err := w.Write(9, nil); !errors.Is(err, ErrFrame) {
		t.Errorf("unknown: %v", err)
	}
	r := NewReader(&b)
	next := func(k Kind) Frame {
		t.Helper()
		f, err := r.Next()
		if err != nil || f.Kind != k {
			t.Fatalf("%v, %v", f, err)
		}
		return f
	}
	next(Stdout)
	if rows, cols := next(Resize).Size(); rows != 24 || cols != 80 {
		t.Errorf("%d × %d", rows, cols)
	}
	if c := next(Exit).Code(); c != -1 {
		t.Errorf("code %d", c)
	}
	if text := string(next(Failed).Body); !strings.HasPrefix(text, "no [2J such program é") || len(text) > maxText {
		t.Errorf("%q", text)
	}
	next(EOF)
	if f := next(Stderr); len(f.Body) != MaxBody {
		t.Errorf("%d bytes", len(f.Body))
	}
	if f := next(Stderr); len(f.Body) != 100 {
		t.Errorf("%d bytes", len(f.Body))
	}
}

func TestDemultiplex(t *testing.T) {
	t.Parallel()
	frames := func(fs ...Frame) (b []byte) {
		for _, f := range fs {
			b = Append(b, f)
		}
		return b
	}
	code := func(n byte) Frame { return Frame{Exit, []byte{0, 0, 0, n}} }
	for _, c := range []struct {
		name     string
		in       []byte
		code     int
		out, err string
		is       error
	}{
		{"ends", frames(Frame{Stdout, []byte("a")}, Frame{Stderr, []byte("b")}, Frame{Stdout, nil}, Frame{Stdout, []byte("c")}, code(3)), 3, "ac", "b", nil},
		{"fails", frames(Frame{Stdout, []byte("a")}, Frame{Failed, []byte("nobody\x07 there")}), 0, "a", "", &Error{"nobody  there"}},
		{"is cut", frames(Frame{Stdout, []byte("a")}), 0, "a", "", ErrCut},
		{"is cut in a frame", frames(Frame{Stdout, []byte("ab")})[:9], 0, "", "", ErrFrame},
		{"wrong direction", frames(Frame{Stdin, []byte("ab")}), 0, "", "", ErrFrame},
	} {
		var out, errs bytes.Buffer
		got, err := Demultiplex(bytes.NewReader(c.in), &out, &errs)
		var said *Error
		same := errors.Is(err, c.is)
		if want, ok := c.is.(*Error); ok {
			same = errors.As(err, &said) && *said == *want
		}
		if got != c.code || out.String() != c.out || errs.String() != c.err || !same {
			t.Errorf("%s: %d %q %q %v", c.name, got, out.String(), errs.String(), err)
		}
	}
	if _, err := Demultiplex(iotestErr{}, io.Discard, io.Discard); !errors.Is(err, ErrCut) {
		t.Error(err)
	}
}

type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error) { return 0, errors.New("reset") }
