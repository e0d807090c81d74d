package buyer

import "testing"

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
