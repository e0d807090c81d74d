package guardian_test

import (
	"errors"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
)

func TestCharter(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		n         int
		threshold uint8
		change    func(*guardian.Charter)
		g         market.Genesis
		ok        bool
	}{
		"2 of 3":             {3, 2, nil, guardiantest.Network, true},
		"1 of 1":             {1, 1, nil, guardiantest.Network, true},
		"4 of 7":             {7, 4, nil, guardiantest.Network, true},
		"3 of 7":             {7, 3, nil, guardiantest.Network, false},
		"1 of 2":             {2, 1, nil, guardiantest.Network, false},
		"5 of 8":             {8, 5, nil, guardiantest.Network, false},
		"4 of 7, escrows":    {7, 4, nil, guardiantest.Escrowed(), false},
		"3 of 5, escrows":    {5, 3, nil, guardiantest.Escrowed(), true},
		"owner guards":       {3, 2, func(c *guardian.Charter) { c.Owner = c.Keys.Keys[1] }, guardiantest.Network, false},
		"job's key guards":   {3, 2, func(c *guardian.Charter) { c.Buyer = c.Keys.Keys[1] }, guardiantest.Network, false},
		"job's key is owner": {3, 2, func(c *guardian.Charter) { c.Buyer = c.Owner }, guardiantest.Network, false},
		"no guardian":        {3, 2, func(c *guardian.Charter) { c.Keys.Keys = nil }, guardiantest.Network, false},
	} {
		c, _ := guardiantest.CharterOf(t, tc.n, tc.threshold)
		if tc.change != nil {
			tc.change(&c)
		}
		if err := c.Check(tc.g); (err == nil) != tc.ok || err != nil && !errors.Is(err, guardian.ErrCharter) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each epoch is one peer's, each peer has one in every round, and those that may ask go in the order of their next epochs.
func TestEpochsBelongToOnePeer(t *testing.T) {
	t.Parallel()
	for n := 1; n <= guardian.MaxGuardians; n++ {
		c, _ := guardiantest.CharterOf(t, n, uint8(n))
		for epoch := uint64(1); epoch < 40; epoch++ {
			s := c.Supervisor(epoch)
			if got := c.NextEpoch(s, epoch-1); got != epoch {
				t.Fatalf("%d guardians: epoch %d is found as %d", n, epoch, got)
			}
			if got := c.NextEpoch(s, epoch); got != epoch+uint64(n)+1 {
				t.Fatalf("%d guardians: after epoch %d comes %d", n, epoch, got)
			}
			turns := map[int]bool{}
			for _, k := range c.Keys.Keys {
				turns[c.Turn(k, epoch)] = true
			}
			if len(turns) != n || s != c.Owner && c.Turn(s, epoch) != n-1 {
				t.Fatalf("%d guardians: after epoch %d the turns are %v", n, epoch, turns)
			}
		}
		if c.Supervisor(1) != c.Owner || c.NextEpoch(sign.Key{1}, 5) != 0 {
			t.Fatal("the first is not the owner's, or a stranger has one")
		}
	}
}
