package networkcmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
)

// voteOptions are the flags about votes of verifiers.
type voteOptions struct {
	voting, lock, epoch time.Duration
	leastBonded         string
	leastBond           string
	emission            string
	firstSlot           uint64
	epochsOfMonth       uint32
}

func (o *voteOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.DurationVar(&o.voting, "voting", 0,
		"length of a ballot; 0 disables votes and rewards")
	f.DurationVar(&o.lock, "lock", 7*24*time.Hour, "time between the end of a vote on rules and its effect")
	f.StringVar(&o.leastBonded, "least-bonded", "1000000",
		"least bonded tokens in the network for votes and rewards")
	f.StringVar(&o.leastBond, "least-bond", "10000",
		"least bonded tokens of a proposer of rules or rewards; not 0")
	f.StringVar(&o.emission, "emission", "0",
		"total emission over 240 months, in --stake-mint; 0: none")
	f.Uint64Var(&o.firstSlot, "first-slot", 0, "first slot of epoch 0; required with --voting")
	f.DurationVar(&o.epoch, "epoch", 24*time.Hour, "length of an epoch, the period of rewards")
	f.Uint32Var(&o.epochsOfMonth, "epochs-of-month", 30,
		"epochs per month; also the time to accept an epoch's rewards")
}

// parameters returns the parameters of votes on a network with a stake mint of these decimals.
func (o *voteOptions) parameters(g market.Genesis, decimals uint8) (account.Votes, error) {
	if o.voting == 0 {
		return account.Votes{}, nil
	}
	if o.firstSlot == 0 {
		return account.Votes{}, cli.WithHint(cli.Usagef("--first-slot is needed with --voting: epochs and months "+
			"of the emission are counted from it"), "`solana slot` prints the current slot")
	}
	v := account.Votes{VotingSlots: g.SlotsIn(o.voting), LockSlots: g.SlotsIn(o.lock), FirstSlot: o.firstSlot,
		EpochSlots: g.SlotsIn(o.epoch), EpochsOfMonth: o.epochsOfMonth}
	for _, f := range []struct {
		name, value string
		to          *uint64
	}{{"--least-bonded", o.leastBonded, &v.LeastBonded}, {"--least-bond", o.leastBond, &v.LeastBond},
		{"--emission", o.emission, &v.Emission}} {
		n, err := market.ParseDecimal(f.value, decimals)
		if err != nil {
			return v, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", f.name, err)}
		}
		*f.to = n
	}
	return v, nil
}
