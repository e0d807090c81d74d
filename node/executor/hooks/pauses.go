package hooks

import (
	"log/slog"

	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
)

// Pauses brings a program of an earlier process to the journal's state: a runtime's pause ends with the process.
type Pauses struct{ Log *slog.Logger }

var _ executor.Recovery = Pauses{}

// Recover implements executor.Recovery.
func (p Pauses) Recover(e *executor.Execution) {
	rt, ok := e.Runtime().(runtime.Pauser)
	if !ok {
		return
	}
	give, err := e.Take(e.Alive())
	if err != nil {
		return
	}
	defer give()
	s, h, _ := e.Snapshot()
	if s.State != nodepb.ExecState_EXEC_STATE_RUNNING || h == nil {
		return
	}
	if err := executor.Freeze(e.Alive(), rt, *h, s.Paused); err != nil && e.Alive().Err() == nil {
		p.Log.Warn("cannot restore the paused state of a program", "lease", e.Lease, "paused", s.Paused, "err", err)
	}
}
