package mystery

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
)

// Task is a program whose result is known.
type Task struct {
	Spec   job.Job           // uploaded or not; its class says what it can run on: cpu, gpu, gpu/h100
	Expect map[string]string // the CID of each output, by its path; the same however and wherever it runs
}

// Check refuses a task that shows nothing.
func (t Task) Check() error {
	for _, out := range t.Spec.Outputs {
		if t.Expect[out.Path] == "" {
			return fmt.Errorf("task %s: what its output %s should be is not said", t.Spec.Name, out.Path)
		}
	}
	if len(t.Expect) == 0 || len(t.Expect) != len(t.Spec.Outputs) {
		return fmt.Errorf("task %s: %d outputs and %d results", t.Spec.Name, len(t.Spec.Outputs), len(t.Expect))
	}
	return nil
}

// maxDemand is how many orders are remembered.
const maxDemand = 256

// Demand remembers what others ask for: of all orders heard as many as there is room for, each as likely as any other.
type Demand struct {
	mu    sync.Mutex
	heard uint64
	kept  []market.Order
}

// Heard takes an order in. It does not wait.
func (d *Demand) Heard(o market.Order) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard++
	if len(d.kept) < maxDemand {
		d.kept = append(d.kept, o)
	} else if i := rand.Uint64N(d.heard); i < maxDemand {
		d.kept[i] = o
	}
}

// sample is what is remembered.
func (d *Demand) sample() []market.Order {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.kept)
}

// shape makes a task a job that asks for what an order asks for: class, units, ranks, time, price and places. false where the task
// cannot run on such units, or the network's slots make no time of it.
func shape(g market.Genesis, t Task, o market.Order) (job.Job, bool) {
	spec := t.Spec
	if !spec.Resources.Class.Accepts(o.Class) || o.Runtime != spec.Runtime {
		return spec, false
	}
	spec.Resources.Class, spec.Resources.Units, spec.Count = o.Class, o.UnitsPer, o.Count
	spec.Resources.PerUnit, spec.Resources.MinCapability, spec.Resources.Unproven = o.Min, o.MinCapability, o.Unproven
	spec.Placement.Regions = slices.Clone(o.Regions)
	spec.Timeouts.Run = time.Duration(o.Slots*g.SlotMillis) * time.Millisecond
	spec.Payment.MaxPrice, spec.Payment.Decimals = o.Ceiling, g.Decimals
	cost, err := spec.MaxCost()
	if err != nil || spec.Timeouts.Run <= 0 {
		return spec, false
	}
	spec.Payment.Budget = cost
	return spec, spec.Check() == nil
}

// draw picks a task and the order of somebody else that it is made to look like; false when nothing fits.
func draw(g market.Genesis, tasks []Task, orders []market.Order, most market.Amount, self map[sign.Key]bool, r *rand.Rand) (job.Job, int, bool) {
	for range 64 {
		if len(tasks) == 0 || len(orders) == 0 {
			break
		}
		i := r.IntN(len(tasks))
		o := orders[r.IntN(len(orders))]
		if spec, ok := shape(g, tasks[i], o); ok && !self[o.Buyer] && spec.Payment.Budget <= most {
			return spec, i, true
		}
	}
	return job.Job{}, 0, false
}

// gap draws how long to wait until a purchase of such a cost, so that the allowance is half used in the mean.
func gap(cost, perDay market.Amount, r *rand.Rand) time.Duration {
	mean := 2 * float64(24*time.Hour) * float64(max(cost, 1)) / float64(max(perDay, 1))
	return time.Duration(min(-math.Log(1-r.Float64())*mean, math.MaxInt64/4))
}

// right compares what a job left with what it should have.
func (t Task) right(outputs map[string]string) bool { return maps.Equal(t.Expect, outputs) }
