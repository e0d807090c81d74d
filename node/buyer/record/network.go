package record

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
)

// Span sums up the paths between all members of a cluster.
type Span struct {
	Class     cluster.Class `json:"class"` // of the slowest
	RTTMicros uint32        `json:"rttMicros"`
	LeastMbit uint32        `json:"leastMbit,omitempty"` // of the measured paths
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
	rtt := RoundTrip(time.Duration(s.RTTMicros) * time.Microsecond)
	text := fmt.Sprintf("%d paths, the longest round trip %v", s.Paths, rtt)
	if s.LeastMbit > 0 {
		text += fmt.Sprintf(", the least rate seen %d Mbit/s", s.LeastMbit)
	}
	if s.Relayed > 0 {
		text += fmt.Sprintf(", %d over relays", s.Relayed)
	}
	return text + ": a " + string(s.Class)
}

// RoundTrip rounds a round trip for a person.
func RoundTrip(d time.Duration) time.Duration {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// Ways has the connections of a member of a cluster to the others, as its provider reports them.
type Ways struct {
	Plan uint64 `json:"plan"` // version of the plan in force there
	// Head is the connection to rank 0. It is nil for the head itself, and without a connection.
	Head    *Way `json:"head,omitempty"`
	Direct  int  `json:"direct"`  // members reached directly, by UDP
	Relayed int  `json:"relayed"` // by a stream of the peers, mostly over a relay
	Cut     int  `json:"cut"`     // not at all, now
}

// Way is the way to another member.
type Way struct {
	Path      Path    `json:"path"`
	RTTMillis float64 `json:"rttMillis,omitempty"` // 0: not measured
	MTU       int     `json:"mtu,omitempty"`       // bytes; 0: not probed
}

// Path is the kind of transport to another member.
type Path string

// The paths.
const (
	PathDirect  Path = "direct"
	PathRelayed Path = "relayed"
	PathNone    Path = "none"
)

// WaysOf reads a provider's report of an execution's links. It returns nil for an execution outside a cluster.
func WaysOf(ex *nodepb.Execution) *Ways {
	if ex.PlanVersion == 0 || len(ex.Links) > cluster.MaxMembers {
		return nil
	}
	w := &Ways{Plan: ex.PlanVersion}
	for _, l := range ex.Links {
		to := Way{Path: PathNone, MTU: int(min(l.GetMtu(), 1<<16))}
		switch l.GetPath() {
		case nodepb.LinkPath_LINK_PATH_DIRECT:
			to.Path = PathDirect
			w.Direct++
		case nodepb.LinkPath_LINK_PATH_RELAYED:
			to.Path = PathRelayed
			w.Relayed++
		default:
			w.Cut++
		}
		if l.GetRank() == 0 {
			to.RTTMillis = float64(min(l.GetRttMicros(), maxRTTMicros)) / 1000
			w.Head = &to
		}
	}
	return w
}

// maxRTTMicros is longer than any way is: a minute.
const maxRTTMicros = 60_000_000

// Equal reports whether two reports are the same to a user: times that differ by less than half are.
func (w *Ways) Equal(o *Ways) bool {
	if w == nil || o == nil {
		return w == o
	}
	if w.Plan != o.Plan || w.Direct != o.Direct || w.Relayed != o.Relayed || w.Cut != o.Cut ||
		(w.Head == nil) != (o.Head == nil) {
		return false
	}
	if w.Head == nil {
		return true
	}
	times := []float64{w.Head.RTTMillis, o.Head.RTTMillis}
	return w.Head.Path == o.Head.Path && w.Head.MTU == o.Head.MTU && slices.Max(times) <= 1.5*slices.Min(times)
}
