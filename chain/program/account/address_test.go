package account_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/account/accounttest"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// TestAddressesDiffer: each argument of an address changes it, no two kinds share one, and no key can be found for it.
func TestAddressesDiffer(t *testing.T) {
	t.Parallel()
	at, k, h := accounttest.Key(99), accounttest.Key, accounttest.Hash
	other := accounttest.Params()
	other.MinStake++
	seen := map[sign.Key]string{}
	for name, of := range map[string][]sign.Key{
		"network": {account.NetworkAddress(at, accounttest.Params()), account.NetworkAddress(k(98), accounttest.Params()),
			account.NetworkAddress(at, other)},
		"pool": {account.PoolAddress(at, k(1), k(2)), account.PoolAddress(at, k(1), k(3)), account.PoolAddress(at, k(2), k(1))},
		"escrow": {account.EscrowAddress(at, k(1), k(2), h(3), 4), account.EscrowAddress(at, k(2), k(2), h(3), 4),
			account.EscrowAddress(at, k(1), k(1), h(3), 4), account.EscrowAddress(at, k(1), k(2), h(4), 4),
			account.EscrowAddress(at, k(1), k(2), h(3), 5), account.EscrowAddress(at, k(1), k(2), h(3), 4<<32)},
		"vault": {account.VaultAddress(at, k(1)), account.VaultAddress(at, k(2))},
		"tranche": {account.TrancheAddress(at, k(1), 1), account.TrancheAddress(at, k(1), 256),
			account.TrancheAddress(at, k(2), 1)},
		"provider": {account.ProviderAddress(at, k(1), k(2)), account.ProviderAddress(at, k(2), k(1))},
		"stake":    {account.StakeAddress(at, k(1)), account.StakeAddress(at, k(2))},
		"anchor":   {account.AnchorAddress(at, k(1), h(2)), account.AnchorAddress(at, k(2), h(1))},
		"emission": {account.EmissionAddress(at, k(1)), account.EmissionAddress(at, k(2))},
		"ballot": {account.BallotAddress(at, k(1), k(2), 3), account.BallotAddress(at, k(2), k(1), 3),
			account.BallotAddress(at, k(1), k(2), 4)},
		"vote": {account.VoteAddress(at, h(1), k(2)), account.VoteAddress(at, h(2), k(1))},
		"payout": {account.PayoutAddress(at, k(1), 2, 3), account.PayoutAddress(at, k(1), 3, 2),
			account.PayoutAddress(at, k(2), 2, 3)},
		"rewards": {account.RewardsAddress(at, k(1)), account.RewardsAddress(at, k(2))},
	} {
		for i, a := range of {
			if was := seen[a]; was != "" {
				t.Errorf("%s %d has the address of %s", name, i, was)
			}
			seen[a] = fmt.Sprint(name, i)
			if err := a.Check(); !errors.Is(err, sign.ErrNotOnCurve) {
				t.Errorf("%s %d may have a key: %v", name, i, err)
			}
		}
	}
}

// TestSeeds: the seeds are those of PROTOCOL.md, section 1.
func TestSeeds(t *testing.T) {
	t.Parallel()
	at, k, h := accounttest.Key(99), accounttest.Key, accounttest.Hash
	p := accounttest.Params()
	params := sign.Sum([]byte("starling/params/v1"), p.Marshal())
	one, two, three := k(1), k(2), h(3)
	for name, c := range map[string]struct {
		got  sign.Key
		want [][]byte
	}{
		"network":  {account.NetworkAddress(at, p), [][]byte{[]byte("network"), params[:]}},
		"pool":     {account.PoolAddress(at, one, two), [][]byte{[]byte("pool"), one[:], two[:]}},
		"escrow":   {account.EscrowAddress(at, one, two, three, 258), [][]byte{[]byte("escrow"), one[:], two[:], three[:], {2, 1, 0, 0, 0, 0, 0, 0}}},
		"vault":    {account.VaultAddress(at, one), [][]byte{[]byte("vault"), one[:]}},
		"tranche":  {account.TrancheAddress(at, one, 258), [][]byte{[]byte("tranche"), one[:], {2, 1}}},
		"provider": {account.ProviderAddress(at, one, two), [][]byte{[]byte("provider"), one[:], two[:]}},
		"stake":    {account.StakeAddress(at, one), [][]byte{[]byte("stake"), one[:]}},
		"anchor":   {account.AnchorAddress(at, one, three), [][]byte{[]byte("anchor"), one[:], three[:]}},
		"emission": {account.EmissionAddress(at, one), [][]byte{[]byte("emission"), one[:]}},
		"ballot":   {account.BallotAddress(at, one, two, 258), [][]byte{[]byte("ballot"), one[:], two[:], {2, 1, 0, 0, 0, 0, 0, 0}}},
		"vote":     {account.VoteAddress(at, three, two), [][]byte{[]byte("vote"), three[:], two[:]}},
		"payout":   {account.PayoutAddress(at, one, 5, 258), [][]byte{[]byte("payout"), one[:], {5}, {2, 1, 0, 0, 0, 0, 0, 0}}},
		"rewards":  {account.RewardsAddress(at, one), [][]byte{[]byte("rewards"), one[:]}},
	} {
		if want := svm.Address(at, c.want...); c.got != want {
			t.Errorf("%s: %s, want %s", name, c.got, want)
		}
	}
}
