package live

import (
	"errors"
	"io"
	"net"
	"testing"
)

// pipe is a Breaker.
type pipe struct{ net.Conn }

func (p pipe) Abort() { _ = p.Close() }

// failing ends with an error after some bytes.
type failing struct {
	left int
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, f.err
	}
	f.left--
	return 1, nil
}

func (f *failing) Close() error { return nil }

// A provider never takes an archive that could not be read for whole, and the error is that of reading it.
func TestSendUnread(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is broken")
	for name, test := range map[string]struct {
		read, want error
		whole      bool
	}{
		"whole":        {io.EOF, nil, true},
		"not readable": {broken, broken, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, far := net.Pipe()
			got := make(chan bool, 1)
			go func() {
				defer far.Close()
				for frames := NewReader(far); ; {
					f, err := frames.Next()
					if whole := err == nil && f.Kind == EOF; err != nil || whole {
						got <- whole
						_ = NewWriter(far).Exit(0)
						return
					}
				}
			}()
			err := Send(pipe{near}, &failing{left: 3, err: test.read})
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if whole := <-got; whole != test.whole {
				t.Errorf("the provider has the whole archive: %v", whole)
			}
		})
	}
}
