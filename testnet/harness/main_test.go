// Connections of the harness agree on keys without ML-KEM: a tenth of a network's work, and no test's subject here.
// Networks of processes have it.

//go:debug tlsmlkem=0

package harness

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestMain has garbage collected seldom: whole networks are made and thrown away hundreds of times, and little of them
// is alive at any time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(int64(min(runtime.GOMAXPROCS(0), 8)) << 30)
	os.Exit(m.Run())
}
