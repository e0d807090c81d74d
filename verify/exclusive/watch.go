package exclusive

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/verify/challenge"
)

// Verdict is a buyer's judgement of one probe.
type Verdict uint8

// The verdicts.
const (
	// Learning: too few probes to compare with.
	Learning Verdict = iota
	// Fine: more than three fifths of the known speed.
	Fine
	// Slow: three fifths of the known speed or less, after a probe that was not slow.
	Slow
	// Contended: slow again. The units are shared.
	Contended
)

// String is the verdict in a word.
func (v Verdict) String() string { return [...]string{"learning", "fine", "slow", "contended"}[v] }

// Observation is one right answer as the buyer timed it.
type Observation struct {
	Operations uint64
	Elapsed    time.Duration // from the question to the answer
	Trip       time.Duration // the fastest round trip around it
}

// Observe is the observation of a question's answer.
func Observe(s challenge.Shape, elapsed, trip time.Duration) Observation {
	return Observation{Operations: s.Operations(), Elapsed: elapsed, Trip: trip}
}

// Rate returns operations a second. It subtracts the fastest of several round trips, which no answer can beat. So it
// never exceeds the hardware's rate, unless the provider delays pings. Other network time reduces it.
func (o Observation) Rate() uint64 {
	took := max(o.Elapsed-max(o.Trip, 0), time.Microsecond)
	hi, lo := mul(o.Operations, uint64(time.Second))
	return div(hi, lo, uint64(took))
}

// Bounds of the rule.
const (
	// learn is the number of probes before the first is judged by the units' own speed.
	learn = 3
	// best is the number of fastest probes that are kept; their median is the units' known speed.
	best = 5
	// inARow is how many slow probes after each other are contention.
	inARow = 2
)

// slowAt is the speed at which a probe is slow: three fifths of the known speed. Two that share a card have half of it
// each, and audits prove up to a tenth less than a card does. So a limit of a half would accept a shared card. A card
// that is hot does seven tenths.
func slowAt(known uint64) uint64 { return known/5*3 + known%5*3/5 }

// Watch applies the rule to all probes of one lease. It is a value; the zero Watch has no probes.
type Watch struct {
	// operations a second that audits proved for the lease's units; 0: not known
	Proven  uint64   `json:"proven,omitempty"`
	Fastest []uint64 `json:"fastest,omitempty"` // operations a second of the fastest probes, ascending
	InARow  int      `json:"inARow,omitempty"`  // slow ones, up to the last
	Probes  int      `json:"probes"`            // right answers
	Alarms  int      `json:"alarms,omitempty"`  // times that contention was seen
	// least rate of a judged probe, in millionths of the speed known then
	Slowest uint64 `json:"slowest,omitempty"`
}

// Known is the speed that the next probe is compared with, operations a second: the proven speed, or else the median of
// the five fastest probes. A few wrong measurements do not move the median. With five probes or more it only grows. It
// is 0 if unknown.
func (w Watch) Known() uint64 {
	switch {
	case w.Proven > 0:
		return w.Proven
	case len(w.Fastest) < learn:
		return 0
	}
	return w.Fastest[len(w.Fastest)/2]
}

// Last is the speed for sizing the next probe; 0 if unknown.
func (w Watch) Last() uint64 {
	if known := w.Known(); known > 0 || len(w.Fastest) == 0 {
		return known
	}
	return w.Fastest[len(w.Fastest)-1]
}

// See judges one probe.
func (w Watch) See(o Observation) (Watch, Verdict) {
	known, rate := w.Known(), o.Rate()
	w.Probes++
	w.Fastest = slices.Clone(w.Fastest)
	at, _ := slices.BinarySearch(w.Fastest, rate)
	if w.Fastest = slices.Insert(w.Fastest, at, rate); len(w.Fastest) > best {
		w.Fastest = w.Fastest[1:]
	}
	if known == 0 {
		return w, Learning
	}
	hi, lo := mul(rate, 1_000_000)
	if part := div(hi, lo, known); w.Slowest == 0 || part < w.Slowest {
		w.Slowest = max(part, 1)
	}
	if rate > slowAt(known) {
		w.InARow = 0
		return w, Fine
	}
	if w.InARow++; w.InARow < inARow {
		return w, Slow
	}
	w.Alarms++
	return w, Contended
}

// Text is the rule's account for a person: "14 probes, slowest 0.97 of proven".
func (w Watch) Text() string {
	if w.Probes == 0 {
		return ""
	}
	text := fmt.Sprintf("%d probes", w.Probes)
	if w.Probes == 1 {
		text = "1 probe"
	}
	if w.Slowest > 0 {
		of := "the fastest"
		if w.Proven > 0 {
			of = "proven"
		}
		text += fmt.Sprintf(", slowest %d.%02d of %s", w.Slowest/1_000_000, w.Slowest/10_000%100, of)
	} else {
		text += ", too few to compare"
	}
	switch {
	case w.Alarms > 0:
		text += fmt.Sprintf("; contended %d times: two in a row at three fifths of the speed or less", w.Alarms)
	case w.InARow > 0:
		text += "; the last was slow"
	}
	return text
}
