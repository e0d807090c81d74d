package hooks

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
)

// EnvDevices names the GPUs of its lease for a program: "NVIDIA H100 80GB HBM3 (simulated), …". A program cannot find
// simulated ones in its container.
const EnvDevices = "STARLING_DEVICES"

// Equipment gives containers the devices of their units.
type Equipment struct{ Devices Devices }

var _ executor.Prestart = Equipment{}

// Prestart implements executor.Prestart.
func (d Equipment) Prestart(_ context.Context, e *executor.Execution, l *executor.Launch) error {
	if _, ok := l.Runtime.(runtime.Images); !ok {
		return nil
	}
	ids, names, err := d.Devices.Names(e.Units)
	if err != nil {
		return fmt.Errorf("assigning devices: %w", err)
	}
	l.Spec.GPUs = ids
	if len(names) > 0 {
		env := maps.Clone(l.Spec.Env)
		if env == nil {
			env = map[string]string{}
		}
		env[EnvDevices] = strings.Join(names, ", ")
		l.Spec.Env = env
	}
	e.Update(func(s *nodepb.Execution) { s.Devices = names })
	return nil
}

// Eviction releases device memory that this peer's other parts hold on the units of a program, just before it starts.
type Eviction struct{ Devices Devices }

var _ executor.Prestart = Eviction{}

// Prestart implements executor.Prestart.
func (v Eviction) Prestart(ctx context.Context, e *executor.Execution, _ *executor.Launch) error {
	return v.Devices.Evict(ctx, e.Units)
}
