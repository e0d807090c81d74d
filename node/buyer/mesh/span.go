package mesh

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/journal"
)

// Records are the measured paths between the members of clusters in the journal, by job and by rank.
var Records = journal.Define[string, []cluster.Path]("paths")

// Paths returns the journalled paths of a job, none for a job that is no cluster.
func Paths(ctx context.Context, s journal.Store, job string) (paths []cluster.Path, err error) {
	err = Records.List(ctx, s, job, func(of string, found []cluster.Path) error {
		if of == job {
			paths = found
		}
		return nil
	})
	return paths, err
}

// Renew returns the paths between members once the ranks of seats have new leases: old paths between the other members
// stay, because members know them, and measured ones are added.
func Renew(old, measured []cluster.Path, members []Finalist, seats []gang.Seat) []cluster.Path {
	stays, kept := map[uint32]bool{}, map[[2]uint32]bool{}
	for _, m := range members {
		stays[m.Rank] = true
	}
	for _, s := range seats {
		delete(stays, s.Rank) // the rank had another provider
	}
	var out []cluster.Path
	for _, p := range old {
		if stays[p.A] && stays[p.B] {
			out, kept[[2]uint32{p.A, p.B}] = append(out, p), true
		}
	}
	for _, p := range measured {
		if !kept[[2]uint32{p.A, p.B}] {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b cluster.Path) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) })
	return out
}

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
