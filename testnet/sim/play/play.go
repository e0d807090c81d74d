// Package play runs adversaries. Each has its own world, which follows from the seed, and faces audits, window after
// window, or one trial. The outcome of a kind is one Line.
package play

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/verify/audit"
)

// ErrUnmet means that a record was accepted, or refused for an unexpected reason.
var ErrUnmet = errors.New("no rule met the attack")

// Options are the parameters of a simulation.
type Options struct {
	Seed        uint64
	Adversaries int // of each kind
	Honest      int // number of honest peers
	Windows     int // audits of each honest peer
	Records     int // number of full records of each kind with records
	Faults      int // number of full runs with flipped bits or a restored backup
}

// Defaults are the options of the table in verify/BENCHMARKS.md: a million honest audits.
var Defaults = Options{Seed: 1, Adversaries: 1000, Honest: 10_000, Windows: 100, Records: 8, Faults: 1000}

// Horizon is the number of windows for which an adversary is watched.
const Horizon = audit.MaxRates

// MaxPerAudit is the target for the share of honest audits that end in delisting.
const MaxPerAudit = 1e-4

// Kind is a method of cheating, or honesty under bad conditions.
type Kind struct {
	Name   string
	Threat int    // its number in the threat table of verify/PROTOCOL.md
	What   string // one line for people
	// Limit is the reason why a kind need not be caught: a known limit of the protocol. Its figures are reported as
	// such.
	Limit  string
	Honest bool // not an adversary: delisting it is wrong

	// Gain bounds the gain of the adversaries of a kind that has Try.
	Gain Gain

	Play func(w *World) Player         // answers hardware audits
	Try  func(w *World) (Trial, error) // or runs one trial
	All  func(o Options) (Line, error) // or runs all adversaries at once
	Real func(i int) error             // makes and checks a full record; ErrUnmet if no rule refuses the attack
}

// Player answers in one window, before a committee of a given size.
type Player func(window int, committee int) audit.Report

// World is the environment of one adversary.
type World struct {
	R     *rand.Rand
	Noise sim.Noise
}

// NewWorld returns the world of the i-th adversary of a kind.
func NewWorld(seed uint64, kind string, i int) *World {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", kind, i)
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	return &World{R: r, Noise: sim.Noise{R: r}}
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
	Delisted int      `json:"delisted"` // number of peers
	PerAudit float64  `json:"per_audit"`
	Records  int      `json:"records"` // number of full records
	Figures  []Figure `json:"figures,omitempty"`
}

// Run plays one kind.
func (k Kind) Run(ctx context.Context, o Options) (Line, error) {
	line := Line{Kind: k.Name, Threat: k.Threat, What: k.What, Limit: k.Limit, Honest: k.Honest}
	var err error
	switch {
	case k.Play != nil:
		err = k.audits(ctx, o, &line)
	case k.Try != nil:
		err = k.trials(ctx, o, &line)
	case k.All != nil:
		var all Line
		all, err = k.All(o)
		line.Peers, line.Audits, line.First, line.Caught = all.Peers, all.Audits, all.First, all.Caught
		line.Figures = all.Figures
	}
	if err != nil {
		return line, fmt.Errorf("%s: %w", k.Name, err)
	}
	if k.Real != nil {
		for i := range o.Records {
			if err := k.Real(i); err != nil {
				return line, fmt.Errorf("%s: record %d: %w", k.Name, i, err)
			}
			line.Records++
		}
	}
	return line, nil
}

// audits runs the adversaries that answer hardware audits.
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
		play := k.Play(NewWorld(o.Seed, k.Name, i))
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
	line.Peers, line.First, line.Caught = peers, Share(first, peers), Share(caught, peers)
	line.Sold, line.PerAudit = Share(sold, peers*windows), Share(line.Delisted, line.Audits)
	return nil
}

// Random returns an unpredictable key or hash.
func Random[T ~[32]byte](w *World) T {
	var b [32]byte
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], w.R.Uint64())
	}
	return T(b)
}
