package harness

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain has garbage collected seldom: whole networks are made and thrown away hundreds of times, and to look through them each time that they have doubled
// takes a tenth of the processor.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
