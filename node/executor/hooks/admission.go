package hooks

import (
	"context"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
)

// Network is the hook of networks.
type Network interface {
	// Joins returns why a program of a runtime cannot be given a network, for its buyer; nil if it can.
	Joins(ctx context.Context, rt runtime.Runtime) error
}

// Admission refuses workloads that break a rule, or that this machine cannot run.
type Admission struct {
	Host    workload.Host
	Network Network
}

var _ executor.Admission = Admission{}

// Admit implements executor.Admission.
func (a Admission) Admit(e *executor.Execution, _ sign.Key) error {
	h := a.Host
	h.Overlay = func(rt runtime.Runtime) error { return a.Network.Joins(e.Alive(), rt) }
	return workload.Check(e.Work, h)
}
