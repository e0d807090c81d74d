package job

import (
	"maps"
	"slices"
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
	// URLs replace those of sources with URLs, such as signed ones that ended. The contents stay the same.
	URLs map[string][]string `json:"urls,omitempty"`
}

// readAt replaces the URLs of sources.
func (j *Job) readAt(urls map[string][]string) error {
	if len(urls) == 0 {
		return nil
	}
	var ps problems
	j.Blobs = maps.Clone(j.Blobs)
	for _, source := range slices.Sorted(maps.Keys(urls)) {
		b := j.Blobs[source]
		if len(b.URLs) == 0 || len(urls[source]) == 0 {
			ps.add("urls", "%.200q: want URLs of a source that has some", source)
			continue
		}
		b.URLs = urls[source]
		j.Blobs[source] = b
	}
	return ps.err()
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
	if err := j.readAt(c.URLs); err != nil {
		return j, err
	}
	return j, j.Check()
}
