package live

import (
	"context"
	"errors"
	"io"
	"testing"
)

// end is one end of a connection that remembers how it ended.
type end struct {
	r        io.Reader
	w        io.Writer
	half     chan struct{} // closed by CloseWrite
	over     chan string   // how it ended first
	unblocks io.Closer
}

func (e *end) Read(p []byte) (int, error)  { return e.r.Read(p) }
func (e *end) Write(p []byte) (int, error) { return e.w.Write(p) }
func (e *end) CloseWrite() error           { close(e.half); return nil }
func (e *end) Close() error                { return e.ends("closed") }
func (e *end) Abort()                      { _ = e.ends("aborted") }

func (e *end) ends(how string) error {
	select {
	case e.over <- how:
	default:
	}
	return e.unblocks.Close()
}

func newEnd() (*end, *io.PipeWriter) {
	r, w := io.Pipe()
	return &end{r: r, w: io.Discard, half: make(chan struct{}), over: make(chan string, 1), unblocks: r}, w
}

func TestSplice(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		a, b error // how the connections end
		how  string
		want error
	}{
		"both end": {nil, nil, "closed", nil},
		"a breaks": {broken, nil, "aborted", nil},
		"b breaks": {nil, broken, "aborted", broken},
	} {
		a, toA := newEnd()
		b, toB := newEnd()
		done := make(chan error, 1)
		go func() { done <- Splice(t.Context(), a, b) }()
		// What ends well does so first, and is passed on.
		first, second, passed, err := toA, toB, b.half, c.b
		if c.a != nil {
			first, second, passed, err = toB, toA, a.half, c.a
		}
		_ = first.Close()
		<-passed
		_ = second.CloseWithError(err)
		if got := <-done; !errors.Is(got, c.want) || c.want == nil && got != nil {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if how := <-a.over; how != c.how {
			t.Errorf("%s: a was %s, want %s", name, how, c.how)
		}
		if how := <-b.over; how != c.how {
			t.Errorf("%s: b was %s, want %s", name, how, c.how)
		}
	}
	// The end of the context is nobody's fault.
	ctx, cancel := context.WithCancel(t.Context())
	a, _ := newEnd()
	b, _ := newEnd()
	done := make(chan error, 1)
	go func() { done <- Splice(ctx, a, b) }()
	cancel()
	if err := <-done; err != nil || <-a.over != "closed" || <-b.over != "closed" {
		t.Errorf("the context ended: %v", err)
	}
}
