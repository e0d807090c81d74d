package files

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/starling-network/starling/p2p/stream"
)

// A fetch goes on as long as it comes further, and is given up when its peer is gone.
func TestResume(t *testing.T) {
	t.Parallel()
	broken := fmt.Errorf("reading: %w", stream.ErrUnreachable)
	cut := fmt.Errorf("%w: %w", broken, &stream.Relayed{Data: 1 << 20})
	final := errors.New("too large")
	for name, c := range map[string]struct {
		parts []int64 // how far each attempt comes
		last  error   // of the attempt after these
		calls int
		want  error
		how   error // they break off; nil: broken
	}{
		"at once":             {nil, nil, 1, nil, nil},
		"never there":         {[]int64{0, 0, 0}, nil, 1, broken, nil},
		"in parts":            {[]int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, nil, 10, nil, nil},
		"after a pause":       {[]int64{5, 5, 5, 5}, nil, 5, nil, nil},
		"gone":                {[]int64{5, 5, 5, 5, 5, 5, 5}, nil, 5, broken, nil},
		"something is wrong":  {[]int64{5}, final, 2, final, nil},
		"cut before it began": {[]int64{0, 0, 3, 4}, nil, 5, nil, cut},
		"cut each time":       {[]int64{0, 0, 0, 0, 0, 0}, nil, 5, cut, cut},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := resume(t.Context(), func(progress func(done, total int64)) error {
				calls++
				if calls > len(c.parts) {
					return c.last
				}
				progress(c.parts[calls-1], 10)
				if c.how != nil {
					return c.how
				}
				return broken
			})
			if calls != c.calls || !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%s: %d calls, %v; want %d, %v", name, calls, err, c.calls, c.want)
			}
			if c.want == cut && !strings.Contains(err.Error(), "relay.dataMiB") {
				t.Errorf("%s: %v does not say what to do", name, err)
			}
		})
	}
}
