package job

import (
	"time"

	"github.com/starling-network/starling/market"
)

// Changes are the differences of a job that is run again. A nil field keeps its value.
type Changes struct {
	Count    *uint32        `json:"count,omitempty"`
	MaxPrice *market.Price  `json:"maxPrice,omitempty"` // base units per unit-hour
	Budget   *market.Amount `json:"budget,omitempty"`   // base units
	Queue    *Span          `json:"queue,omitempty"`
	Run      *Span          `json:"run,omitempty"`
}

// With returns the job with changes. A budget that was the most the job could cost is that again. The error is an
// *Error.
func (j Job) With(c Changes) (Job, error) {
	cost, err := j.MaxCost()
	whole := err == nil && cost == j.Payment.Budget
	if c.Count != nil {
		j.Count = *c.Count
	}
	if c.MaxPrice != nil {
		j.Payment.MaxPrice = *c.MaxPrice
	}
	if c.Queue != nil {
		j.Timeouts.Queue = time.Duration(*c.Queue)
	}
	if c.Run != nil {
		j.Timeouts.Run = time.Duration(*c.Run)
	}
	if cost, err := j.MaxCost(); whole && err == nil {
		j.Payment.Budget = cost
	}
	if c.Budget != nil {
		j.Payment.Budget = *c.Budget
	}
	if len(j.Blobs) > 0 && j.Count <= MaxRank { // of fewer ranks some inputs are not needed
		blobs := map[string]Blob{}
		for _, source := range j.Sources() {
			if b, ok := j.Blobs[source]; ok {
				blobs[source] = b
			}
		}
		j.Blobs = blobs
	}
	return j, j.Check()
}
