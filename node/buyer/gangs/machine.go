package gangs

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/machine"
)

// forming is the machine of a gang. It has no journal: the job's machine journals the order before, and the leases
// after. If the process ends between, the job's machine orders anew, and the holds end with their deadlines.
type forming struct{ gang.Gang }

// event is a gang.Event, or begun.
type event any

// begun is the first event.
type begun struct {
	order  market.Order
	chosen []gang.Member
	spares []sign.Key
	params gang.Params
}

// stepped is the effects of one step, which are carried out together, and the state after it.
type stepped struct {
	state   gang.Gang
	effects []gang.Effect
}

// ending is the end of a gang: formed if it is zero.
type ending struct {
	failed *gang.FailedWith
	err    error // the gang did not end by itself
}

// Step implements machine.Machine.
func (f forming) Step(now machine.Now, ev event) (forming, []stepped, error) {
	var effects []gang.Effect
	var err error
	switch ev := ev.(type) {
	case begun:
		f.Gang, effects = gang.New(ev.order, ev.chosen, ev.spares, ev.params)
	case gang.Event:
		f.Gang, effects, err = f.Gang.Step(now, ev)
	default:
		err = fmt.Errorf("event %T: not of a gang", ev)
	}
	return f, []stepped{{f.Gang, effects}}, err
}

// Next implements machine.Machine.
func (f forming) Next(machine.Now) time.Time {
	at, _ := f.NextDeadline()
	return at
}

// Done implements machine.Machine.
func (f forming) Done() bool { return f.State().Final() }

// machine makes the runner of the gang.
func (g *Gang) machine(calls context.Context) *machine.Runner[market.OrderID, forming, event, stepped] {
	r, _ := machine.New(calls, shell{Gang: g, calls: calls}, machine.Config[event]{
		Name: "gang", Tick: gang.DeadlinePassed{}, Log: g.cfg.Log,
		Clock: func() (machine.Now, error) {
			now := machine.Now{Time: time.Now()}
			now.Slot, _ = g.cfg.Clock.Now(now.Time) // nothing is drafted in an unknown slot
			return now, nil
		},
	}) // Load does not fail: there is no journal
	return r
}

// shell carries out the effects of a gang.
type shell struct {
	machine.Volatile[market.OrderID, forming, stepped]
	*Gang
	calls context.Context
}

// Carry implements machine.Shell. The calls are not the runner's: they outlive it, so that each hold is released.
func (x shell) Carry(order market.OrderID, s stepped) func(context.Context) []event {
	x.fund(x.calls, s.effects)
	x.seated(s.state)
	for _, e := range s.effects {
		switch e := e.(type) {
		case gang.Formed:
			x.formed(e.Seats)
			x.end(ending{})
		case gang.FailedWith:
			x.end(ending{failed: &e})
		default:
			x.wg.Go(func() {
				if ev := x.do(x.calls, e); ev != nil {
					_ = x.runner.Post(order, ev) // nobody waits for it if the gang has ended
				}
			})
		}
	}
	return nil
}

// end reports the end of the gang once.
func (g *Gang) end(e ending) {
	select {
	case g.ended <- e:
	default:
	}
}
