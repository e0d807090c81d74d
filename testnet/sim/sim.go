package sim

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/starling-network/starling/testnet/sim/audits"
	"github.com/starling-network/starling/testnet/sim/play"
)

// Report is the whole table.
type Report struct {
	Options play.Options        `json:"options"`
	Lines   []play.Line         `json:"lines"`
	Faults  []FaultLine         `json:"faults"`
	Limits  []audits.Shortfall  `json:"shortfalls"`
	Capture []audits.CaptureRow `json:"capture"`
	Targets []play.Figure       `json:"targets"`
	Seconds float64             `json:"seconds"`
}

// Run runs every kind, with as many at a time as there are processors.
func Run(ctx context.Context, o play.Options) (Report, error) {
	began := time.Now()
	kinds := Kinds()
	rep := Report{
		Options: o, Lines: make([]play.Line, len(kinds)), Limits: audits.Shortfalls(), Capture: audits.Captures(),
	}
	errs := make([]error, len(kinds)+1)
	var wg sync.WaitGroup
	turn := make(chan struct{}, runtime.GOMAXPROCS(0))
	start := func(job func()) {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			job()
		})
	}
	start(func() { rep.Faults, errs[len(kinds)] = faults(ctx, o) })
	for i, k := range kinds {
		start(func() { rep.Lines[i], errs[i] = k.Run(ctx, o) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return rep, err
		}
	}
	rep.Targets = rep.targets()
	rep.Seconds = time.Since(began).Seconds()
	return rep, nil
}
