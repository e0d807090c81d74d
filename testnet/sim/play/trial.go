package play

import (
	"context"
	"fmt"
	"math"
)

// Trial is the result of one adversary outside hardware audits: it is played once, to the end.
type Trial struct {
	First  bool    // caught at the first check
	Caught bool    // caught within Horizon checks
	Checks int     // number of checks
	Gain   float64 // gain by cheating over honesty, in the unit of the kind's Gain
}

// Gain is the unit and the bound of the gain of a kind's adversaries.
type Gain struct {
	What  string
	Most  float64
	Worst bool // the largest gain, not the mean
	// Chance means that the gain is 0 or 1, and 1 with probability Most: the target allows four standard deviations of
	// the number of trials.
	Chance bool
}

// Figure is one measured number beside its target.
type Figure struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Bound float64 `json:"bound"`
	Least bool    `json:"least,omitempty"` // Bound is a minimum, not a maximum
	Unit  string  `json:"unit,omitempty"`  // "%": Value and Bound are shares of 1
	Of    string  `json:"of,omitempty"`    // number of trials
}

// Met reports whether the target is met.
func (f Figure) Met() bool {
	if f.Least {
		return f.Value >= f.Bound
	}
	return f.Value <= f.Bound
}

// Measured returns the measured number as text.
func (f Figure) Measured() string { return f.number(f.Value) }

// Target is the bound of the figure.
func (f Figure) Target() string {
	if f.Least {
		return "≥ " + f.number(f.Bound)
	}
	return "≤ " + f.number(f.Bound)
}

func (f Figure) number(x float64) string {
	if f.Unit == "%" {
		return fmt.Sprintf("%.6g %%", 100*x)
	}
	return fmt.Sprintf("%.4g", x)
}

// trials runs the adversaries of a kind.
func (k Kind) trials(ctx context.Context, o Options, line *Line) error {
	var first, caught int
	var sum, most float64
	for i := range o.Adversaries {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, err := k.Try(NewWorld(o.Seed, k.Name, i))
		if err != nil {
			return err
		}
		line.Audits += t.Checks
		if t.First {
			first++
		}
		if t.Caught {
			caught++
		}
		if sum += t.Gain; i == 0 || t.Gain > most {
			most = t.Gain
		}
	}
	line.Peers, line.First, line.Caught = o.Adversaries, Share(first, o.Adversaries), Share(caught, o.Adversaries)
	if k.Gain.What != "" {
		f := Figure{What: k.Name + ": " + k.Gain.What, Value: sum / float64(max(o.Adversaries, 1)), Bound: k.Gain.Most}
		switch {
		case k.Gain.Worst:
			f.Value = most
		case k.Gain.Chance:
			f.Bound += 4 * math.Sqrt(f.Bound*(1-f.Bound)/float64(max(o.Adversaries, 1)))
		}
		line.Figures = append(line.Figures, f)
	}
	return nil
}

// Share is n as a share of a number; 0 if that is 0.
func Share(n, of int) float64 { return float64(n) / float64(max(of, 1)) }
