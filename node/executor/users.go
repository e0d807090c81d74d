package executor

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
)

// users are the users of programs. A lease has one user for all its programs, and programs of two leases never run as
// one user.
type users struct {
	of    map[market.LeaseID]uint32
	taken map[uint32]bool
}

// add notes the user of a lease's program, and whether that program runs.
func (u *users) add(l market.LeaseID, user uint32, runs bool) {
	if u.of == nil {
		u.of, u.taken = map[market.LeaseID]uint32{}, map[uint32]bool{}
	}
	u.of[l] = user
	if runs {
		u.taken[user] = true
	}
}

// pick returns the user of a lease, or a free one. The search begins at a number of the lease, so that two peers on one
// machine seldom pick the same.
func (u *users) pick(l market.LeaseID) (uint32, error) {
	if user, ok := u.of[l]; ok && user <= runtime.MaxUser { // an earlier build gave larger ones
		return user, nil
	}
	first := uint32(l[0])<<8 | uint32(l[1])
	for i := range uint32(runtime.MaxUser) {
		if user := 1 + (first+i)%runtime.MaxUser; !u.taken[user] {
			return user, nil
		}
	}
	return 0, workload.Bad("%d executions run here", len(u.taken))
}
