package mesh

import (
	"slices"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
)

// Ways has the connections of a member of a cluster to the others, as its provider reports them.
type Ways struct {
	Plan uint64 `json:"plan"` // version of the plan in force there
	// Head is the way to rank 0. It is nil for the head itself, and while there is none.
	Head    *Way `json:"head,omitempty"`
	Direct  int  `json:"direct"`  // members that packets go to by UDP
	Relayed int  `json:"relayed"` // by a stream of the peers, mostly over a relay
	Cut     int  `json:"cut"`     // not at all, now
}

// Way is the way to another member.
type Way struct {
	Path      Path    `json:"path"`
	RTTMillis float64 `json:"rttMillis,omitempty"` // 0: not measured
	MTU       int     `json:"mtu,omitempty"`       // bytes; 0: not probed
}

// Path is what carries packets to another member.
type Path string

// The paths.
const (
	PathDirect  Path = "direct"
	PathRelayed Path = "relayed"
	PathNone    Path = "none"
)

// WaysOf reads a provider's report of an execution's links. It returns nil for one that is no member of a cluster.
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
