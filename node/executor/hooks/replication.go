package hooks

import (
	"context"

	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/runtime"
)

// Replication excludes partial results of deterministic programs from comparisons between providers. A seeded program
// that was stopped, or whose lease ended first, has no result: it counts as killed.
type Replication struct{}

var _ executor.Exit = Replication{}

// Exited implements executor.Exit.
func (Replication) Exited(_ context.Context, e *executor.Execution, r *executor.Result) error {
	if e.Work.Seed != 0 && e.Stopping() && r.Exit != nil && r.Reason == string(runtime.ReasonNone) {
		r.Reason = string(runtime.ReasonKilled)
	}
	return nil
}
