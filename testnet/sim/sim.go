package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/verify/audit"
)

// Options are the parameters of a simulation.
type Options struct {
	Seed        uint64
	Adversaries int // of each kind
	Honest      int // peers
	Windows     int // that each honest peer is audited in
	Records     int // that are really made and checked of each kind which can be
	Faults      int // flipped bits, and restored backups, that honest peers are really put through
}

// Defaults are the options of the table in verify/BENCHMARKS.md: a million honest audits.
var Defaults = Options{Seed: 1, Adversaries: 1000, Honest: 10_000, Windows: 100, Records: 8, Faults: 1000}

// Horizon is how many windows an adversary is watched for.
const Horizon = audit.MaxRates

// Kind is a way to cheat, or to be honest under bad conditions.
type Kind struct {
	Name   string
	Threat int    // its number in the threat table of verify/PROTOCOL.md
	What   string // one line for people
	// Limit says why a kind need not be caught: it is a known limit of the protocol, and its figures are reported as
	// such.
	Limit  string
	Honest bool // not an adversary: being delisted is wrong

	// Gain bounds the gain of the adversaries of a kind that has try.
	Gain Gain

	play func(w *world) player         // answers audits of hardware
	try  func(w *world) (trial, error) // or is met by something else,
	all  func(o Options) (Line, error) // or all of them at once
	real func(i int) error             // makes and checks a real record: an error says that no rule met the attack
}

// player answers in one window, before a committee of so many.
type player func(window int, committee int) audit.Report

// world is the environment of one adversary.
type world struct {
	r     *rand.Rand
	noise sim.Noise
}

func newWorld(seed uint64, kind string, i int) *world {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", kind, i)
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	return &world{r: r, noise: sim.Noise{R: r}}
}

// Line is the result of one kind.
type Line struct {
	Kind     string   `json:"kind"`
	Threat   int      `json:"threat"`
	What     string   `json:"what"`
	Limit    string   `json:"limit,omitempty"`
	Honest   bool     `json:"honest,omitempty"`
	Peers    int      `json:"peers"`
	Audits   int      `json:"audits"`
	First    float64  `json:"first"`    // share that the first audit kept from selling
	Caught   float64  `json:"caught"`   // share delisted, or never sold, within Horizon audits
	Sold     float64  `json:"sold"`     // share of windows after which they could sell
	Delisted int      `json:"delisted"` // peers
	PerAudit float64  `json:"per_audit"`
	Records  int      `json:"records"` // really made and checked
	Figures  []Figure `json:"figures,omitempty"`
}

// Report is the whole table.
type Report struct {
	Options Options      `json:"options"`
	Lines   []Line       `json:"lines"`
	Faults  []FaultLine  `json:"faults"`
	Limits  []Shortfall  `json:"shortfalls"`
	Capture []CaptureRow `json:"capture"`
	Targets []Figure     `json:"targets"`
	Seconds float64      `json:"seconds"`
}

// Run plays every kind, as many at a time as there are processors.
func Run(ctx context.Context, o Options) (Report, error) {
	began := time.Now()
	kinds := Kinds()
	rep := Report{Options: o, Lines: make([]Line, len(kinds)), Limits: Shortfalls(), Capture: Captures()}
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
		start(func() { rep.Lines[i], errs[i] = k.run(ctx, o) })
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

// run plays one kind.
func (k Kind) run(ctx context.Context, o Options) (Line, error) {
	line := Line{Kind: k.Name, Threat: k.Threat, What: k.What, Limit: k.Limit, Honest: k.Honest}
	var err error
	switch {
	case k.play != nil:
		err = k.audits(ctx, o, &line)
	case k.try != nil:
		err = k.trials(ctx, o, &line)
	case k.all != nil:
		var all Line
		all, err = k.all(o)
		line.Peers, line.Audits, line.First, line.Caught = all.Peers, all.Audits, all.First, all.Caught
		line.Figures = all.Figures
	}
	if err != nil {
		return line, fmt.Errorf("%s: %w", k.Name, err)
	}
	if k.real != nil {
		for i := range o.Records {
			if err := k.real(i); err != nil {
				return line, fmt.Errorf("%s: record %d: %w", k.Name, i, err)
			}
			line.Records++
		}
	}
	return line, nil
}

// audits plays the adversaries that answer audits of hardware.
func (k Kind) audits(ctx context.Context, o Options, line *Line) error {
	peers, windows := o.Adversaries, Horizon
	if k.Honest && k.Threat == 0 {
		peers, windows = o.Honest, o.Windows
	}
	var first, caught, sold int
	for i := range peers {
		if err := ctx.Err(); err != nil {
			return err
		}
		play := k.play(newWorld(o.Seed, k.Name, i))
		var s audit.Standing
		listed := 0
		for n := range windows {
			s = s.Step(play(n, s.CommitteeSize()))
			line.Audits++
			if s.State == audit.Listed {
				listed++
			} else if n == 0 {
				first++
			}
			if s.State == audit.Delisted {
				line.Delisted++
				break
			}
		}
		if sold += listed; s.State == audit.Delisted || listed == 0 {
			caught++
		}
	}
	line.Peers, line.First, line.Caught = peers, share(first, peers), share(caught, peers)
	line.Sold, line.PerAudit = share(sold, peers*windows), share(line.Delisted, line.Audits)
	return nil
}
