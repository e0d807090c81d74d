package audits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// anyGPU returns one of the classes, in turn.
func anyGPU(w *play.World) sim.Class { return sim.GPUs[w.R.IntN(len(sim.GPUs))] }

// faultsPerAudit is the rate of bit flips in an honest peer's results of an audit; the peer then withholds (Seal). A
// GPU with ECC has about one a year; the simulation plays a thousand times as many.
const faultsPerAudit = 1e-4

// honestPeer is a peer with the claimed hardware, with noise, outages and flipped bits.
func honestPeer(w *play.World) play.Player {
	u := honest(w, anyGPU(w))
	return func(window, committee int) audit.Report {
		rep := u.play(window, committee)
		if rep.Result == audit.Passed && w.R.Float64() < faultsPerAudit {
			rep.Broken++ // the previous attempt was withheld
		}
		return rep
	}
}

var honestKinds = []play.Kind{
	{Name: "honest", What: "peers with noise, heat, outages and flipped bits", Honest: true, Play: honestPeer,
		Real: honestRecord},
}

// honestRecord is a whole audit with a simulated device: the record commits to its tiles and ends, and contains the
// members' times.
func honestRecord(i int) error {
	class := sim.GPUs[i%len(sim.GPUs)]
	u := (&unit{}).claims(class)
	clock := &sim.Clock{}
	d := sim.New(sim.Config{Class: class, Clock: clock, Shape: u.shape, Walk: u.walk})
	var took [2]time.Duration
	c := Case(i)
	c.Verdict = func(v *audit.Verdict) {
		v.Product, v.Walk = uint64(took[0].Microseconds()), uint64(took[1].Microseconds())
	}
	first, err := c.Make() // for the seeds
	if err != nil {
		return err
	}
	a, ctx := first.Answer, context.Background()
	timed := func(k int, f func() error) error {
		began := clock.Now()
		err := f()
		took[k] = clock.Now() - began
		return err
	}
	var tiles []sign.Hash
	var groups []sign.Hash
	err = errors.Join(
		timed(0, func() (err error) { tiles, err = d.Multiply(ctx, a.ProductSeed, c.Shape); return err }),
		d.Fill(ctx, device.Of(a.DatasetSeed, c.Walk)),
		timed(1, func() (err error) {
			groups, err = d.Walk(ctx, challenge.WalkKey(a.WalkSeed), device.Of(a.DatasetSeed, c.Walk), c.Walk)
			return err
		}),
		d.Close())
	if err != nil {
		return err
	}
	commit, err := challenge.Commit(c.Shape, tiles)
	if err != nil {
		return err
	}
	r, err := c.Make()
	if err != nil {
		return err
	}
	arrivals, err := challenge.NewArrivals(c.Walk, groups, nil)
	if err != nil {
		return err
	}
	if commit.Root() != r.Answer.ProductRoot || arrivals.Root() != r.Answer.WalkRoot {
		return fmt.Errorf("the answers of the simulated device differ")
	}
	if err := errors.Join(r.Check(audittest.Domain()), r.CheckMembers(c.Roster), r.CheckDataset(c.Era())); err != nil {
		return err
	}
	// The times are of the claimed class, for a judgement in that class.
	claimed := audit.Record{Committee: r.Committee, Verdicts: slices.Clone(r.Verdicts),
		Answer: audit.Answer{Shape: u.shape, Walk: u.walk}}
	return claimed.CheckClass(class.Market, class.Resources)
}
