package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
)

// Bounds of the data about paths.
const (
	maxRTT  = 10_000_000 // microseconds
	maxMbit = 1_000_000

	maxPaths    = MaxMembers * (MaxMembers - 1) / 2
	maxPathSize = 4 + 3 + 3 // bytes of one in a plan
)

// Path is the measurement of the path between two ranks of a cluster, before their leases were signed.
type Path struct {
	A         uint32 `json:"a"` // the lower rank
	B         uint32 `json:"b"`
	RTTMicros uint32 `json:"rttMicros"`         // the shortest round trip; 0: both on one peer
	Mbit      uint32 `json:"mbit,omitempty"`    // that a probe carried; 0: not measured
	Relayed   bool   `json:"relayed,omitempty"` // over a relay, then
}

// RTT is the round trip.
func (p Path) RTT() time.Duration { return time.Duration(p.RTTMicros) * time.Microsecond }

// Class is that of the path.
func (p Path) Class() Class {
	switch {
	case p.Relayed:
		return WAN
	case p.Mbit > 0:
		return ClassOf(p.RTT(), uint64(p.Mbit))
	}
	return ClassByRTT(p.RTT())
}

// Slowest is the class of the slowest of paths, LAN of none.
func Slowest(paths []Path) Class {
	out := LAN
	for _, p := range paths {
		if is := p.Class(); !out.Admits(is) {
			out = is
		}
	}
	return out
}

// comparePaths orders paths row by row, as the lower half of a matrix is read.
func comparePaths(p, q Path) int { return cmp.Or(cmp.Compare(p.B, q.B), cmp.Compare(p.A, q.A)) }

// WithPaths is the plan with the measurements between its members, of all known ones of their cluster.
func (p Plan) WithPaths(all []Path) Plan {
	at := p.places()
	p.Paths = nil
	for _, path := range all {
		if path.A > path.B {
			path.A, path.B = path.B, path.A
		}
		_, a := at[path.A]
		_, b := at[path.B]
		if a && b && path.A != path.B && path.RTTMicros > 0 {
			path.RTTMicros, path.Mbit = min(path.RTTMicros, maxRTT), min(path.Mbit, maxMbit)
			p.Paths = append(p.Paths, path)
		}
	}
	slices.SortFunc(p.Paths, comparePaths)
	p.Paths = slices.CompactFunc(p.Paths, func(x, y Path) bool { return comparePaths(x, y) == 0 })
	return p
}

// places are those of the ranks among the members.
func (p Plan) places() map[uint32]int {
	at := make(map[uint32]int, len(p.Members))
	for i, m := range p.Members {
		at[m.Rank] = i
	}
	return at
}

// checkPaths holds the paths to their rules.
func (p Plan) checkPaths() error {
	at := p.places()
	for i, path := range p.Paths {
		_, a := at[path.A]
		_, b := at[path.B]
		switch {
		case path.A >= path.B || !a || !b:
			return bad("a path from %d to %d is of no two members", path.A, path.B)
		case i > 0 && comparePaths(p.Paths[i-1], path) >= 0:
			return bad("the path from %d to %d is out of order", path.A, path.B)
		case path.RTTMicros == 0 || path.RTTMicros > maxRTT || path.Mbit > maxMbit:
			return bad("the path from %d to %d: %d µs and %d Mbit/s, want 1 to %d µs and at most %d Mbit/s",
				path.A, path.B, path.RTTMicros, path.Mbit, maxRTT, maxMbit)
		}
	}
	return nil
}

// protoPaths is Paths as they travel.
func (p Plan) protoPaths() *nodepb.ClusterPaths {
	if len(p.Paths) == 0 {
		return nil
	}
	at, n := p.places(), len(p.Members)
	out := &nodepb.ClusterPaths{RttMicros: make([]uint32, n*(n-1)/2)}
	for _, path := range p.Paths {
		i := at[path.B]*(at[path.B]-1)/2 + at[path.A]
		out.RttMicros[i] = path.RTTMicros
		if path.Mbit > 0 {
			if out.Mbit == nil {
				out.Mbit = make([]uint32, len(out.RttMicros))
			}
			out.Mbit[i] = path.Mbit
		}
		if path.Relayed {
			out.Relayed = append(out.Relayed, uint32(i))
		}
	}
	return out
}

// decodePaths reads the paths between members.
func decodePaths(members []Member, m *nodepb.ClusterPaths) ([]Path, error) {
	n := len(members)
	switch all := n * (n - 1) / 2; {
	case m == nil:
		return nil, nil
	case len(m.RttMicros) != all || len(m.Mbit) != 0 && len(m.Mbit) != all || len(m.Relayed) > all:
		return nil, bad("%d round trips, %d rates, %d relayed, for %d paths between %d members",
			len(m.RttMicros), len(m.Mbit), len(m.Relayed), all, n)
	}
	var out []Path
	relayed := m.Relayed
	i := 0
	for b := range n {
		for a := range b {
			p := Path{A: members[a].Rank, B: members[b].Rank, RTTMicros: m.RttMicros[i]}
			if len(m.Mbit) > 0 {
				p.Mbit = m.Mbit[i]
			}
			if len(relayed) > 0 && relayed[0] == uint32(i) {
				p.Relayed, relayed = true, relayed[1:]
			}
			if i++; p.RTTMicros > 0 {
				out = append(out, p)
			} else if p.Mbit > 0 || p.Relayed {
				return nil, bad("the path from %d to %d has no round trip, but a rate or a relay", p.A, p.B)
			}
		}
	}
	if len(relayed) > 0 {
		return nil, bad("relayed path %d: unknown or out of order", relayed[0])
	}
	return out, nil
}

// known are the paths that were measured, and those between members on one peer.
func (p Plan) known() []Path {
	out := slices.Clone(p.Paths)
	on := map[sign.Key][]uint32{}
	for _, m := range p.Members {
		for _, a := range on[m.Provider()] {
			out = append(out, Path{A: a, B: m.Rank})
		}
		on[m.Provider()] = append(on[m.Provider()], m.Rank)
	}
	slices.SortStableFunc(out, comparePaths)
	return slices.CompactFunc(out, func(x, y Path) bool { return comparePaths(x, y) == 0 })
}

// class is that of the slowest path; none while not all are known.
func (c Contract) class() Class {
	n := len(c.Nodes)
	if n < 2 || len(c.Paths) != n*(n-1)/2 {
		return ""
	}
	return Slowest(c.Paths)
}

// withPaths puts the paths into a Description's text, an object, as its last field:
//
//	"paths": {"rtt_micros": [[], [210], [220, null]], "mbit": [[], [940], [null, null]], "relayed": [[0, 2]]}
//
// Row i has member i's paths to the members before it, in their order; null: not known. relayed are pairs of ranks.
func (c Contract) withPaths(text []byte) []byte {
	text = fmt.Append(text[:len(text)-len("\n}")], ",\n  \"paths\": {\n    \"rtt_micros\": ")
	text = c.matrix(text, func(p Path) (uint32, bool) { return p.RTTMicros, true })
	text = append(text, ",\n    \"mbit\": "...)
	text = c.matrix(text, func(p Path) (uint32, bool) { return p.Mbit, p.Mbit > 0 })
	text = append(text, ",\n    \"relayed\": ["...)
	first := true
	for _, p := range c.Paths {
		if p.Relayed {
			if !first {
				text = append(text, ',')
			}
			first = false
			text = fmt.Appendf(text, "[%d,%d]", p.A, p.B)
		}
	}
	return append(text, "]\n  }\n}\n"...)
}

// matrix appends the values of `of` for each path, a line for each member.
func (c Contract) matrix(text []byte, of func(Path) (n uint32, known bool)) []byte {
	text = append(text, '[')
	paths := c.Paths
	for b := range c.Nodes {
		if b > 0 {
			text = append(text, ',')
		}
		text = append(text, "\n      ["...)
		for a := range b {
			if a > 0 {
				text = append(text, ',')
			}
			n, known := uint32(0), false
			if len(paths) > 0 && paths[0].A == c.Nodes[a].Rank && paths[0].B == c.Nodes[b].Rank {
				n, known = of(paths[0])
				paths = paths[1:]
			}
			if known {
				text = strconv.AppendUint(text, uint64(n), 10)
			} else {
				text = append(text, "null"...)
			}
		}
		text = append(text, ']')
	}
	return append(text, "\n    ]"...)
}
