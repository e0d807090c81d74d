package pay

import (
	"maps"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
)

// guardedJob is a job with two guardians, of which the second guards for nothing, and two standbys.
func guardedJob(t *testing.T) (record.Job, market.LeaseID) {
	t.Helper()
	key := func(i byte) sign.Key { return sign.NewPrivate([32]byte{i}).Key() }
	wage := market.LeaseCore{Version: market.LeaseVersion, Buyer: key(1), Provider: key(3), Rate: 7, Cap: 70}
	j := record.Job{ID: "j1", State: record.Running, Detached: &record.Detached{
		Owner: key(1), Key: key(2), Escrow: &record.Place{Opened: 7},
		Guardians: []record.Guardian{{Key: key(3), Wage: &wage}, {Key: key(4)}},
	}}
	j.Spec.Resources.Units = 4
	for i := byte(5); i < 7; i++ {
		q := market.Quote{Provider: key(i), Payout: key(i + 10), Price: market.Price(i)}
		j.Detached.Standbys = append(j.Detached.Standbys, record.Standby{Quote: q, Budget: market.Amount(100 * int(i))})
	}
	return j, wage.ID()
}

// A guarded job has the money of its record: standbys with their prices for each rank, and the wages that are paid.
func TestGuardOf(t *testing.T) {
	t.Parallel()
	j, wage := guardedJob(t)
	keys, err := market.NewKeySet(1, j.Detached.Key)
	if err != nil {
		t.Fatal(err)
	}
	g := GuardOf(j, true, keys)
	if !g.Mine || !g.Running || g.Owner != j.Detached.Owner || g.Key != j.Detached.Key || g.Place.Opened != 7 || g.Keys.Hash() != keys.Hash() {
		t.Errorf("%+v", g)
	}
	if len(g.Wages) != 1 || g.Wages[0].ID() != wage {
		t.Errorf("wages %+v", g.Wages)
	}
	for i, sb := range g.Standbys {
		q := j.Detached.Standbys[i]
		if sb != (Standby{q.Quote.Provider, q.Quote.Payout, q.Quote.Price, 4, q.Budget}) {
			t.Errorf("standby %d: %+v", i, sb)
		}
	}
	if len(g.Standbys) != 2 {
		t.Errorf("%d standbys", len(g.Standbys))
	}
	j.State = record.Matching
	if g := GuardOf(j, false, keys); g.Mine || g.Running {
		t.Errorf("another peer's that is not placed: %+v", g)
	}
	j.Detached = nil
	if g := GuardOf(j, true, keys); g != nil {
		t.Errorf("without guardians: %+v", g)
	}
}

// The place of a job's money is recorded with the wages that were set aside, and without standbys that were not. A wage
// that is missing is an error: its guardian would guard for nothing. The record before stays as it is.
func TestPlacement(t *testing.T) {
	t.Parallel()
	j, wage := guardedJob(t)
	d := j.Detached
	at := Placement{Place: record.Place{Opened: 9}, Standbys: []sign.Key{d.Standbys[1].Quote.Provider},
		Wages: map[market.LeaseID][]byte{wage: {1, 2}}}
	wages, err := at.WagesOf(d.Guardians)
	if want := map[string][]byte{d.Guardians[0].Key.String(): {1, 2}}; err != nil || !maps.EqualFunc(wages, want, slices.Equal) {
		t.Fatalf("wages %v, %v", wages, err)
	}
	next := at.In(d, wages)
	if next.Escrow.Opened != 9 || len(next.Wages) != 1 || len(next.Standbys) != 1 || next.Standbys[0].Budget != 600 {
		t.Errorf("%+v", next)
	}
	if d.Escrow.Opened != 7 || d.Wages != nil || len(d.Standbys) != 2 || d.Standbys[0].Budget != 500 {
		t.Errorf("the record before was changed: %+v", d)
	}
	at.Wages = nil
	if _, err := at.WagesOf(d.Guardians); err == nil {
		t.Error("a wage that is not set aside: no error")
	}
}

// Spent is the money that left the wallet and is not back.
func TestSpent(t *testing.T) {
	t.Parallel()
	open := record.Escrow{Deposited: 100, Paid: 30, Refunded: 20}
	closed := record.Escrow{Deposited: 50, Paid: 40, Refunded: 10, Closed: true}
	for name, c := range map[string]struct {
		all  []record.Escrow
		want market.Amount
	}{
		"no escrow": {nil, 7}, "open": {[]record.Escrow{open}, 80}, "closed": {[]record.Escrow{closed}, 40},
		"both": {[]record.Escrow{open, closed}, 120},
	} {
		if got := Spent(c.all, 7); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
