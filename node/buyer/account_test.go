package buyer

import (
	"reflect"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
)

// A job is shown with the sums over its escrows, and without the box of its key. One that was archived keeps its own.
func TestWithMoney(t *testing.T) {
	t.Parallel()
	escrows := []Escrow{{Deposited: 100, Paid: 30, Refunded: 20}, {Deposited: 50, Paid: 50, Closed: true}}
	j := withMoney(Job{Escrows: escrows, Detached: &Detached{Box: []byte{1}, Epoch: 3}, Transactions: []string{"tx"}})
	if j.Paid != 80 || j.Held != 50 || j.Lamports.Fees == 0 || j.Lamports.Rent == 0 {
		t.Errorf("paid %d, held %d, lamports %+v", j.Paid, j.Held, j.Lamports)
	}
	if j.Detached.Box != nil || j.Detached.Epoch != 3 {
		t.Errorf("%+v", j.Detached)
	}
	if j := withMoney(Job{Paid: 7}); j.Paid != 7 || j.Held != 0 {
		t.Errorf("without escrows: paid %d, held %d", j.Paid, j.Held)
	}
}

// The guardians of a job come back from package guardian as they were.
func TestMembersOf(t *testing.T) {
	t.Parallel()
	key := func(n byte) sign.Key { return sign.NewPrivate([32]byte{n}).Key() }
	want := []record.Guardian{
		{Key: key(1), Addrs: []string{"/ip4/192.0.2.1"}, Wage: &market.LeaseCore{Units: 1}}, {Key: key(2)},
	}
	if got := guardiansOf(membersOf(want)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	j := Job{Detached: &Detached{Owner: key(9), Guardians: want, Key: key(8), Terms: sign.Hash{7}}}
	c, err := charterOf(j.Detached)
	if err != nil || c.Owner != key(9) || c.Keys.Threshold != 2 || len(c.Keys.Keys) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}
