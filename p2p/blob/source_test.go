package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
)

// place is a source that sends text from the offset on, cut after so many bytes if that is not 0. It shows its size if
// sized.
type place struct {
	r     func(offset int64) io.Reader
	sized int64
	asked []int64 // offsets
}

func (p *place) Open(_ context.Context, _ cid.Cid, offset, _ int64) (io.ReadCloser, int64, error) {
	p.asked = append(p.asked, offset)
	return io.NopCloser(p.r(offset)), p.sized, nil
}

func from(text string) func(int64) io.Reader {
	return func(offset int64) io.Reader { return strings.NewReader(text[offset:]) }
}

// zeros never end.
type zeros struct{ n int64 }

func (z *zeros) Read(p []byte) (int, error) {
	clear(p)
	z.n += int64(len(p))
	return len(p), nil
}

var errCut = errors.New("cut")

// A source of unknown size is read to its end, resumed where it broke off, and noted as a holder.
func TestReceiveUnknownSize(t *testing.T) {
	t.Parallel()
	s, err := OpenStore(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("0123456789abcdef", 10_000)
	c := Sum([]byte(text))
	p := &place{sized: -1, r: func(int64) io.Reader { return io.MultiReader(strings.NewReader(text[:99_000]), cut{}) }}
	if fresh, err := s.Receive(t.Context(), p, c, 1<<20, []string{"a"}, nil); !errors.Is(err, errCut) || !fresh || s.Has(c) {
		t.Fatalf("fresh %v, %v", fresh, err)
	}
	if used := s.Used(); used != 0 || s.Brought(c, "a") {
		t.Errorf("%d bytes are reserved for a transfer that broke off", used)
	}
	p.r = from(text)
	var last, all int64
	if fresh, err := s.Receive(t.Context(), p, c, int64(len(text)), []string{"a", "b"}, func(done, total int64) { last, all = done, total }); err != nil || !fresh {
		t.Fatalf("fresh %v, %v", fresh, err)
	}
	if last != int64(len(text)) || all != -1 || len(p.asked) != 2 || p.asked[1] == 0 {
		t.Errorf("%d of %d, asked from %v", last, all, p.asked)
	}
	if size, err := s.Size(c); err != nil || size != int64(len(text)) || s.Used() != size || !s.Brought(c, "a") || !s.Brought(c, "b") {
		t.Errorf("%d bytes, %d used, %v", size, s.Used(), err)
	}
	if fresh, err := s.Receive(t.Context(), p, c, 1<<20, []string{"c"}, nil); err != nil || fresh || s.Brought(c, "c") || len(p.asked) != 2 {
		t.Errorf("a stored one: fresh %v, %v, asked %d times", fresh, err, len(p.asked))
	}
}

type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, errCut }

// A source of unknown size that never ends is read to the caller's limit, and nothing of it stays.
func TestAttackEndlessSource(t *testing.T) {
	t.Parallel()
	s, err := OpenStore(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	z := &zeros{}
	p := &place{sized: -1, r: func(int64) io.Reader { return z }}
	c := Sum([]byte("x"))
	if _, err := s.Receive(t.Context(), p, c, 1<<20, nil, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	if parts, err := s.partials(); s.Has(c) || s.Used() != 0 || len(parts) != 0 || err != nil || z.n > 2<<20 {
		t.Errorf("%d bytes used, %d parts, %d bytes read, %v", s.Used(), len(parts), z.n, err)
	}
	p.r = from("y")
	if _, err := s.Receive(t.Context(), p, c, 1<<20, nil, nil); !errors.Is(err, ErrDigest) || s.Has(c) || s.Used() != 0 {
		t.Errorf("wrong bytes: %v, %d bytes used", err, s.Used())
	}
}

// A source shows that it has a stored blob by its bytes, whether it says their number or not.
func TestProofOfSource(t *testing.T) {
	t.Parallel()
	s, err := OpenStore(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := s.Put(t.Context(), strings.NewReader("text"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		p    place
		want error
	}{
		"known size":   {place{r: from("text"), sized: 4}, nil},
		"unknown size": {place{r: from("text"), sized: -1}, nil},
		"longer":       {place{r: from("text and more"), sized: -1}, nil}, // its first bytes are the blob's
		"other size":   {place{r: from("texts"), sized: 5}, ErrDigest},
		"other bytes":  {place{r: from("tent"), sized: -1}, ErrDigest},
	} {
		if err := NewProof(s, c).Take(t.Context(), &test.p, 1<<20, nil); !errors.Is(err, test.want) || test.want == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSumOf(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("x"), 1<<20)
	if c, n, err := SumOf(bytes.NewReader(data)); err != nil || n != 1<<20 || c != Sum(data) {
		t.Errorf("%v, %d bytes, %v", c, n, err)
	}
	if _, n, err := SumOf(io.MultiReader(strings.NewReader("abc"), cut{})); n != 3 || !errors.Is(err, errCut) {
		t.Errorf("%d bytes, %v", n, err)
	}
}
