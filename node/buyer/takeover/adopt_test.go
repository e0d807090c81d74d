package takeover

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/record"
)

// The record of a job takes the epoch of its command, beside the news of the last supervisor.
func TestGrantedAmends(t *testing.T) {
	t.Parallel()
	j := record.Job{Detached: &record.Detached{}}
	before := j.Detached
	Granted{Epoch: 6, Grant: []byte{1}, public: &record.Standing{Orders: []market.OrderID{{5}}}}.amend(&j, true)
	if d := j.Detached; d.Epoch != 6 || len(d.Grant) != 1 || before.Epoch != 0 || len(j.Orders) != 1 {
		t.Errorf("%+v, orders %v", d, j.Orders)
	}
	Granted{Epoch: 7}.amend(&j, true)
	if j.Detached.Epoch != 7 || len(j.Orders) != 1 {
		t.Errorf("%+v, orders %v", j.Detached, j.Orders)
	}
}
