package mesh

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/node/cluster"
)

// Span sums up the paths between all members of a cluster.
type Span struct {
	Class     cluster.Class `json:"class"` // of the slowest
	RTTMicros uint32        `json:"rttMicros"`
	LeastMbit uint32        `json:"leastMbit,omitempty"` // of those that were measured
	Relayed   int           `json:"relayed,omitempty"`
	Paths     int           `json:"paths"`
}

// SpanOf sums paths up.
func SpanOf(paths []cluster.Path) Span {
	s := Span{Class: cluster.Slowest(paths), Paths: len(paths)}
	for _, p := range paths {
		s.RTTMicros = max(s.RTTMicros, p.RTTMicros)
		if p.Mbit > 0 && (s.LeastMbit == 0 || p.Mbit < s.LeastMbit) {
			s.LeastMbit = p.Mbit
		}
		if p.Relayed {
			s.Relayed++
		}
	}
	return s
}

// String is the span in the words of `starling why`.
func (s Span) String() string {
	rtt := Round(time.Duration(s.RTTMicros) * time.Microsecond)
	text := fmt.Sprintf("%d paths, the longest round trip %v", s.Paths, rtt)
	if s.LeastMbit > 0 {
		text += fmt.Sprintf(", the least rate seen %d Mbit/s", s.LeastMbit)
	}
	if s.Relayed > 0 {
		text += fmt.Sprintf(", %d over relays", s.Relayed)
	}
	return text + ": a " + string(s.Class)
}

// Round rounds a round trip for a person.
func Round(d time.Duration) time.Duration {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
