package mesh

import (
	"cmp"
	"context"
	"slices"

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
