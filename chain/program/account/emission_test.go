package account_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program/account"
)

// TestEmissionHoldsTheCap: the months give no more than the cap, and for the network's own 300 million all but a ten-millionth; the
// epochs of a month give what it gives; after 240 months nothing comes.
func TestEmissionHoldsTheCap(t *testing.T) {
	t.Parallel()
	const star = 300_000_000 * 1_000_000_000 // base units
	months := func(emission uint64) (all uint64) {
		for m := range uint64(account.EmissionMonths) {
			all += account.MonthOfEmission(emission, m)
		}
		return all
	}
	if all := months(star); all > star || star-all > star/1_000_000 {
		t.Errorf("%d of %d are given", all, uint64(star))
	}
	if first := account.MonthOfEmission(star, 0); first != 3_333_333_333_333_333 {
		t.Errorf("the first month gives %d", first)
	}
	rapid.Check(t, func(t *rapid.T) {
		emission, n := rapid.Uint64().Draw(t, "cap"), rapid.Uint32Range(1, 2000).Draw(t, "epochs of a month")
		if all := months(emission); all > emission {
			t.Fatalf("%d of %d are given", all, emission)
		}
		m := rapid.Uint64Range(0, account.EmissionMonths+2).Draw(t, "month")
		var all uint64
		for k := range uint64(n) {
			all += account.Allowance(emission, n, m*uint64(n)+k)
		}
		if gives := account.MonthOfEmission(emission, m); all != gives || m >= account.EmissionMonths && gives != 0 {
			t.Fatalf("the epochs of month %d give %d, the month %d", m, all, gives)
		}
	})
}
