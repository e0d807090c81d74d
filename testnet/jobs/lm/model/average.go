package model

import (
	"fmt"
	"math"
)

// Average merges models that were trained separately from the same base into one model with the training of all. It
// keeps every worker's rare weights whole and does not overshoot on the common ones; a plain mean would dilute the
// first, a plain sum of changes would overdo the second.
//
// Method: under Adagrad a weight w with target w* and gradient sum g moves, in the mean, as dw/dg = rate·(w*−w)/√g.
// Over a round in which g grows from g0 by d it covers the part
//
//	f(d) = 1 − exp(−joint·2·rate·(√(g0+d) − √g0))
//
// of its distance. Worker k's change Δk, made with dk, thus puts the target at a distance of Δk/f(dk), with a trust in
// proportion to dk; one worker with all the data would have covered f(Σd) of the distance to the joint target. Hence
//
//	Δ = f(Σd) · Σk (dk/Σd) · Δk/f(dk)   =   Σk Δk · φ(dk)/φ(Σd),   φ(d) = d/f(d).
//
// One worker alone keeps its change; K workers that all reached the target give their mean; K that took small steps
// give their sum.
//
// base and workers are results of Read, baseSum is the sum of base's file. It returns ErrMismatch if the models have
// different tables, rounds or bases.
func Average(base *Model, baseSum uint64, workers []*Model) (*Model, error) {
	if len(workers) == 0 {
		return nil, fmt.Errorf("%w: no weights to average", ErrMismatch)
	}
	out := New(base.bits)
	out.Round, out.Bytes, out.Base = base.Round+1, base.Bytes, baseSum
	for k, w := range workers {
		switch {
		case w.bits != base.bits:
			return nil, fmt.Errorf("%w: worker %d has 2^%d weights, base 2^%d", ErrMismatch, k, w.bits, base.bits)
		case w.Round != base.Round:
			return nil, fmt.Errorf("%w: worker %d is in round %d, base in %d", ErrMismatch, k, w.Round, base.Round)
		case w.Base != baseSum:
			return nil, fmt.Errorf("%w: worker %d was trained from another base", ErrMismatch, k)
		case w.Bytes < base.Bytes:
			return nil, fmt.Errorf("%w: worker %d has less training than the base", ErrMismatch, k)
		}
		out.Bytes += w.Bytes - base.Bytes
	}
	for i, b := range base.slots {
		out.slots[i] = join(b, i, workers)
	}
	return out, nil
}

func join(b slot, i int, workers []*Model) slot {
	var total float32
	moved := false
	for _, w := range workers {
		s := w.slots[i]
		total += max(0, s.g-b.g) // rounding may have decreased it slightly
		moved = moved || s != b
	}
	if !moved {
		return b
	}
	all := reach1(b.g, total)
	var change float32
	for _, w := range workers {
		s := w.slots[i]
		if s.w != b.w {
			change += float32((s.w - b.w) * float32(reach1(b.g, max(0, s.g-b.g))/all))
		}
	}
	return slot{w: b.w + change, g: b.g + total}
}

// joint represents the other features of the same decision, which move at the same time to the same end.
const joint = 4

// reach1 is φ(d) for a previous gradient sum g0.
func reach1(g0, d float32) float32 {
	const c = joint * 2 * rate
	// In 64 bits: the difference of two close roots would have almost no digits in 32 bits.
	was := float64(g0) + gradient
	root, next := math.Sqrt(was), math.Sqrt(was+float64(d))
	x := float64(c * float64(next-root))
	if x < 1e-2 { // d/x + d/2, where the table of the logistic is too coarse
		return float32(float64((root+next)/c) + float64(float64(d)/2))
	}
	return d / float32(1-float32(expNeg(float32(x))))
}

// expNeg is exp(-x) for x >= 0, from the table of the logistic: exp(-x) = (1-p)/p.
func expNeg(x float32) float32 {
	p := logistic(x)
	return (1 - p) / p
}
