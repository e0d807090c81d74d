package sim

import (
	"fmt"

	"github.com/starling-network/starling/testnet/sim/play"
)

// The targets.
const (
	MinCaught   = 0.999 // of every kind without a limit, within Horizon audits
	MaxOverhead = 1e-3  // of a device's time
)

// targets are the figures of the whole table with their bounds.
func (r Report) targets() []play.Figure {
	least, slashed, trials := play.Figure{What: "caught within 24 audits, least of all kinds without a limit", Value: 1,
		Bound: MinCaught, Least: true, Unit: "%"}, 0, 0
	wrong := play.Figure{What: "audits of honest peers that end in delisting, most of all conditions",
		Bound: play.MaxPerAudit, Unit: "%"}
	kinds, peers, audits := 0, 0, 0
	var own []play.Figure
	for _, l := range r.Lines {
		switch {
		case l.Honest && len(l.Figures) == 0: // kinds with figures are not audits
			wrong.Value = max(wrong.Value, l.PerAudit)
			audits += l.Audits
		case !l.Honest && l.Limit == "":
			least.Value = min(least.Value, l.Caught)
			kinds, peers = kinds+1, peers+l.Peers
		}
		own = append(own, l.Figures...)
	}
	least.Of, wrong.Of = fmt.Sprintf("%d adversaries of %d kinds", peers, kinds), fmt.Sprintf("%d audits", audits)
	for _, f := range r.Faults {
		slashed, trials = slashed+f.Slashed, trials+f.Trials
	}
	busy := play.Figure{What: "device time that audits take, most of all classes (modelled)", Bound: MaxOverhead,
		Unit: "%"}
	for _, s := range r.Limits {
		busy.Value = max(busy.Value, s.Overhead)
	}
	return append([]play.Figure{
		least, wrong,
		{What: "honest peers slashed, by flipped bits and restored backups", Value: float64(slashed),
			Of: fmt.Sprintf("%d faults", trials)}, busy,
	}, own...)
}

// Misses returns a sentence for each figure that misses its target.
func (r Report) Misses() []string {
	var out []string
	for _, l := range r.Lines {
		switch {
		case l.Honest && l.PerAudit > play.MaxPerAudit:
			out = append(out, fmt.Sprintf("%s: %d of %d audits delisted an honest peer", l.Kind, l.Delisted, l.Audits))
		case !l.Honest && l.Limit == "" && l.Caught < MinCaught:
			out = append(out, fmt.Sprintf("%s: %.2f %% caught within %d audits", l.Kind, 100*l.Caught, play.Horizon))
		}
		for _, f := range l.Figures {
			if !f.Met() {
				out = append(out, fmt.Sprintf("%s: %s, target %s", f.What, f.Measured(), f.Target()))
			}
		}
	}
	for _, f := range r.Faults {
		if f.Slashed > 0 {
			out = append(out, fmt.Sprintf("%s: an honest peer was proven to lie %d times", f.Fault, f.Slashed))
		}
	}
	for _, s := range r.Limits {
		if s.Overhead > MaxOverhead {
			out = append(out, fmt.Sprintf("%s: audits take %.3f %% of its time", s.Class, 100*s.Overhead))
		}
	}
	return out
}
