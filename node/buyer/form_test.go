package buyer

import (
	"testing"

	"github.com/starling-network/starling/node/job"
)

// The rank with the largest input decides.
func TestBrought(t *testing.T) {
	t.Parallel()
	spec := job.Job{
		Module: "m", Count: 2, Inputs: []job.Input{{Source: "in/{rank}", Path: "/in"}},
		Blobs: map[string]job.Blob{"m": {Size: 10 << 10}, "in/0": {Size: 1 << 10}, "in/1": {Size: 190 << 10}},
	}
	if got := brought(spec); got != 200<<10 {
		t.Errorf("the larger rank needs %d bytes", got)
	}
}
