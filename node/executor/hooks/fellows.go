package hooks

import (
	"context"

	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/workload"
)

// Fellows lets the providers of a job's other ranks read its files here until the program has ended. It is before the
// hooks that fetch files.
type Fellows struct {
	From executor.Files
}

var (
	_ executor.Prestart = Fellows{}
	_ executor.Recovery = Fellows{}
	_ executor.Exit     = Fellows{}
)

type fellowsKey struct{}

// Prestart implements executor.Prestart.
func (f Fellows) Prestart(_ context.Context, e *executor.Execution, _ *executor.Launch) error {
	f.Recover(e)
	return nil
}

// Recover implements executor.Recovery.
func (f Fellows) Recover(e *executor.Execution) {
	peers := workload.Fellows(e.Work)
	if len(peers) == 0 || e.Value(fellowsKey{}) != nil {
		return
	}
	e.SetValue(fellowsKey{}, f.From.Join(e.Commander(), peers, workload.Common(e.Work)))
}

// Exited implements executor.Exit.
func (Fellows) Exited(_ context.Context, e *executor.Execution, _ *executor.Result) error {
	if leave, ok := e.Value(fellowsKey{}).(func()); ok {
		leave()
		e.SetValue(fellowsKey{}, nil)
	}
	return nil
}
