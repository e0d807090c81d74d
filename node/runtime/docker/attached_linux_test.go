package docker

import (
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime/runtimetest"
)

// An answer on a port is whole although the program ends right after it, and a caller that does not read it does not
// keep the container.
func TestLastAnswer(t *testing.T) {
	t.Parallel()
	const size = 350_000 // more than one socket holds, less than all on the way do
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	for what, reads := range map[string]bool{"read late": true, "never read": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := start(t, r, probe(t, ref, "answer", "127.0.0.1:8080", strconv.Itoa(size)))
			c := runtimetest.Dial(t, r, h, 8080)
			defer c.Close()
			if reads {
				time.Sleep(100 * time.Millisecond) // the program has ended
				if back, err := io.ReadAll(c); err != nil || len(back) != size {
					t.Errorf("%d bytes of the last answer, %v", len(back), err)
				}
			}
			if e := wait(t, r, h); e.Code != 0 {
				t.Errorf("%+v", e)
			}
		})
	}
}
