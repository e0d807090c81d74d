package p2ptest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/p2p/p2ptest"
)

// A bubble may end at any time: nothing is left running.
func TestEndsAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			p2ptest.NewNet(t, 2, 10*time.Millisecond)
		})
	}
}
