// Package kept has the request for copies of a job's outputs at other peers.
package kept

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job/span"
)

// Copies are the paid copies of a job's outputs at other peers. After the job succeeded, its peer encrypts the outputs
// with a key of that job, and rents disk for them at Count providers. Each copy is a job of its own with its own cost,
// which is no part of this job's budget.
type Copies struct {
	Count uint32    `json:"count"`
	For   span.Span `json:"for"`
	// MaxPrice is the highest price of a unit of disk for an hour.
	MaxPrice market.Price `json:"maxPrice,omitempty"`
}

// Limits of the copies of one job.
const (
	MaxCount       = 8
	MinFor, MaxFor = time.Minute, 30 * 24 * time.Hour
)

// Problem is a problem of copies, with their field: ".count", or "" for all of them.
type Problem struct{ Field, Text string }

// Check returns the problems of the copies of a job with a number of outputs, on a free network or another. c is
// optional; if nil, there are none.
func (c *Copies) Check(outputs int, free bool) (all []Problem) {
	if c == nil {
		return nil
	}
	add := func(field, format string, args ...any) {
		all = append(all, Problem{field, fmt.Sprintf(format, args...)})
	}
	if c.Count < 1 || c.Count > MaxCount {
		add(".count", "%d, want 1 to %d", c.Count, MaxCount)
	}
	if d := time.Duration(c.For); d < MinFor || d > MaxFor {
		add(".for", "%v, want %v to %v", d, MinFor, MaxFor)
	}
	switch {
	case free && c.MaxPrice != 0:
		add(".maxPrice", "a free network has no prices: leave it out")
	case !free && c.MaxPrice == 0:
		add(".maxPrice", "missing: the highest price of a unit of disk for an hour")
	}
	if outputs == 0 {
		add("", "the job has no outputs")
	}
	return all
}
