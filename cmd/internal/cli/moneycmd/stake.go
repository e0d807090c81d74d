package moneycmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
)

// NewStake makes the command `starling stake`.
func NewStake(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupMoney, &cobra.Command{
		Use:   "stake",
		Short: "Register as a provider; add, bond and withdraw stake",
		Long: `A provider registers once: its owner and its peer key sign, and the program stores its owner and its
payout wallet. A provider loses its stake if a peer proves that it sold one unit twice; buyers can require stake.
Removed stake waits until earlier evidence has expired, and can be slashed until it is withdrawn. Bonded stake votes on
the network's rules (starling network proposal) and on rewards (starling stake rewards).

These commands call the program themselves; the peer need not run. The peer's key pays the fees.`,
		Example: `  starling stake register
  starling stake add 250
  starling stake bond 200
  starling stake status
  starling stake remove all
  starling stake withdraw`,
	}, stakeRegister(a), stakeAdd(a), stakeStatus(a), stakeRemove(a), stakeWithdraw(a), stakeBond(a), stakeRelease(a),
		rewardsShow(a), rewardsClaim(a))
}

// StakeOptions are the flags of the commands about a registration.
type StakeOptions struct {
	Options
	provider string
}

// ProviderFlag adds --provider.
func (o *StakeOptions) ProviderFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.provider, "provider", "", "the provider's peer key (default this peer's)")
}

// StakeInfo is the output of stake status. Amounts are in base units of the stake mint.
type StakeInfo struct {
	Provider     sign.Key    `json:"provider"` // its peer key
	Account      sign.Key    `json:"account"`  // of the registration
	Owner        sign.Key    `json:"owner"`
	Payout       sign.Key    `json:"payout"`
	Inventory    sign.Hash   `json:"inventory"`
	Stake        uint64      `json:"stake"`
	Least        uint64      `json:"least"`            // least stake of the network
	Bonded       uint64      `json:"bonded"`           // of the stake: votes
	Frozen       uint64      `json:"frozen,omitempty"` // last slot of the votes with this stake
	Raised       uint64      `json:"-"`
	Unbonding    uint64      `json:"unbonding"`
	Ready        uint64      `json:"ready,omitempty"`   // slot from which unbonding stake can be withdrawn
	Slashed      uint64      `json:"slashed,omitempty"` // slot of the last slash
	Registered   uint64      `json:"registered"`        // slot
	Slot         market.Slot `json:"slot"`              // slot of this state
	StakeMint    sign.Key    `json:"stakeMint"`
	unbondSlots  uint64
	Terms        account.Params
	withdrawable bool
}

// Registration reads the registration of the named peer key, or of this peer.
func Registration(l *Chain, ctx context.Context, o StakeOptions) (info StakeInfo, err error) {
	key := l.Peer.Key()
	if o.provider != "" {
		if key, err = cli.Address("--provider", o.provider); err != nil {
			return info, err
		}
	}
	n, err := l.Network(ctx)
	if err != nil {
		return info, l.Explain(err)
	}
	p, now, err := l.Provider(ctx, key)
	if errors.Is(err, chain.ErrNotFound) {
		return info, cli.WithHint(&cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("provider %s is not registered",
			key)},
			"starling stake register; or name its peer key by --provider")
	}
	if err != nil {
		return info, l.Explain(err)
	}
	return StakeInfo{Provider: key, Account: account.ProviderAddress(l.Genesis.Program, l.Genesis.Escrow, key),
		Owner: p.Owner, Payout: p.Payout,
		Inventory: p.Inventory, Stake: p.Stake, Least: n.Rules.MinStake, Bonded: p.Bonded, Frozen: p.Frozen,
		Raised:    p.Raised,
		Unbonding: p.Unbonding, Ready: p.Ready, Slashed: p.Slashed,
		Registered: p.Registered, Slot: now, StakeMint: n.Params.StakeMint, unbondSlots: n.Rules.UnbondingSlots,
		Terms:        n.Params,
		withdrawable: p.Unbonding > 0 && uint64(now) >= p.Ready}, nil
}

func stakeRegister(a *cli.App) *cobra.Command {
	var o Options
	var payout, inventory string
	c := &cobra.Command{
		Use:   "register",
		Short: "Register this peer as a provider of its owner",
		Long: `Registers this peer's key and its owner on the chain. Both sign: with a cold owner, give its keypair file
with --wallet. The rent of the registration is never refunded, since the registration is permanent. If the peer runs
here, it supplies the list of its units.`,
		Example: `  starling stake register
  starling stake register --payout <wallet> --wallet owner.json`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := OpenProgram(a, o)
			if err != nil {
				return err
			}
			call := program.Register{Payer: l.Peer.Key(), Owner: l.Owner, Peer: l.Peer.Key(),
				Network: l.Genesis.Escrow, Payout: l.Owner}
			if payout != "" {
				if call.Payout, err = cli.Address("--payout", payout); err != nil {
					return err
				}
			}
			if inventory != "" {
				if call.Inventory, err = sign.ParseHash(inventory); err != nil {
					return cli.Usagef("--inventory: %q is not a hash", cli.Clip(inventory, 80))
				}
			} else if call.Inventory, err = peerInventory(a, c.Context(), l.Peer.Key()); err != nil {
				return err
			}
			return register(l, c.Context(), call)
		},
	}
	o.Flags(c)
	c.Flags().StringVar(&payout, "payout", "", "wallet that receives payments (default the owner)")
	c.Flags().StringVar(&inventory, "inventory", "",
		"Merkle root of the ids of the units (default from the peer)")
	return c
}

// peerInventory requests the root over the units from the peer; zero, with a message, if no peer runs or it sells none.
func peerInventory(a *cli.App, ctx context.Context, peer sign.Key) (sign.Hash, error) {
	client, err := a.Client()
	var info api.NodeInfo
	if err == nil {
		info, err = api.GetNode.Call(ctx, client, api.None{})
	}
	switch {
	case errors.Is(err, api.ErrNoPeer):
		a.Say("no peer runs here, so no inventory is stated: start it first, or give --inventory")
		return sign.Hash{}, nil
	case err != nil:
		return sign.Hash{}, err
	case info.Key != peer:
		return sign.Hash{}, cli.WithHint(cli.Usagef("the peer that runs here is %s, not %s", info.Key, peer),
			"give --inventory")
	case info.Inventory.IsZero():
		a.Say("the peer has no units for sale, so no inventory is stated")
	}
	return info.Inventory, nil
}

func register(l *Chain, ctx context.Context, call program.Register) error {
	owner, err := l.Signer(call.Owner, "the owner")
	if err != nil {
		return err
	}
	n, err := l.Network(ctx)
	if err != nil {
		return l.Explain(err)
	}
	if _, _, err := l.Provider(ctx, call.Peer); err == nil {
		return cli.WithHint(cli.Usagef("provider %s is registered already", call.Peer), "starling stake status")
	} else if !errors.Is(err, chain.ErrNotFound) {
		return l.Explain(err)
	}
	call.Provider = account.ProviderAddress(l.Genesis.Program, l.Genesis.Escrow, call.Peer)
	call.Vault, call.Mint = account.StakeAddress(l.Genesis.Program, call.Provider), n.Params.StakeMint
	return l.Send(ctx, fmt.Sprintf("registering provider %s of owner %s, paid to %s", call.Peer, call.Owner,
		call.Payout),
		[]svm.Instruction{call.Instruction(l.Genesis.Program)}, owner)
}

func stakeAdd(a *cli.App) *cobra.Command {
	var o StakeOptions
	c := &cobra.Command{
		Use:   "add AMOUNT",
		Short: "Put up stake",
		Long: `Moves AMOUNT tokens from the owner's wallet into the provider's stake. The owner signs if its key is
available, else the peer as its delegate. Any wallet may add to any provider's stake; only the provider's owner can
withdraw it.`,
		Example: `  starling stake add 250
  starling stake add 250 --provider 7xKX…gAsU`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, s, err := stakes(a, c.Context(), o)
			if err != nil {
				return err
			}
			n, err := StakeAmount(l, s, args[0])
			if err != nil {
				return err
			}
			by := l.Spender()
			call := program.Stake{Authority: by.Key(), Source: svm.TokenAccount(l.Owner, s.StakeMint),
				Provider: s.Account,
				Vault:    account.StakeAddress(l.Genesis.Program, s.Account), Mint: s.StakeMint, Amount: n}
			return l.Send(c.Context(), fmt.Sprintf("adding %s of %s to the stake of %s",
				l.Text(s.StakeMint, n, s.Terms), l.Owner, s.Provider),
				[]svm.Instruction{call.Instruction(l.Genesis.Program)}, by)
		},
	}
	o.Flags(c)
	o.ProviderFlag(c)
	return c
}

// stakes opens the chain and reads a registration.
func stakes(a *cli.App, ctx context.Context, o StakeOptions) (*Chain, StakeInfo, error) {
	l, err := OpenProgram(a, o.Options)
	if err != nil {
		return nil, StakeInfo{}, err
	}
	s, err := Registration(l, ctx, o)
	return l, s, err
}

// StakeAmount reads an amount of the stake mint.
func StakeAmount(l *Chain, s StakeInfo, text string) (uint64, error) {
	if s.StakeMint == l.Genesis.Mint {
		n, err := l.Amount(text)
		return uint64(n), err
	}
	for _, m := range s.Terms.Mints {
		if m.Mint == s.StakeMint {
			return baseUnits(text, m.Decimals)
		}
	}
	return baseUnits(text, 0) // base units: the decimals of the mint are unknown
}

// stakeUpTo parses AMOUNT|all of the stake mint.
func stakeUpTo(l *Chain, s StakeInfo, text string, all uint64) (uint64, error) {
	if text == "all" {
		return all, nil
	}
	return StakeAmount(l, s, text)
}

func stakeStatus(a *cli.App) *cobra.Command {
	var o StakeOptions
	c := &cobra.Command{
		Use:     "status",
		Short:   "Show a provider's registration and stake",
		Example: `  starling stake status`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			l, s, err := stakes(a, c.Context(), o)
			if err != nil {
				return err
			}
			return a.Show(s, func(t *cli.Table) { stakeTable(l, t, s) })
		},
	}
	o.ReadFlags(c)
	o.ProviderFlag(c)
	return c
}

func stakeTable(l *Chain, t *cli.Table, s StakeInfo) {
	text := func(n uint64) string { return l.Text(s.StakeMint, n, s.Terms) }
	t.Row("provider", s.Provider)
	t.Row("owner", s.Owner)
	t.Row("paid to", s.Payout)
	t.Row("registered", l.When(s.Slot, market.Slot(s.Registered)))
	if !s.Inventory.IsZero() {
		t.Row("inventory", s.Inventory)
	}
	note := ""
	if s.Stake < s.Least {
		note = "less than the network's least, " + text(s.Least)
	}
	t.Row("stake", text(s.Stake), note)
	if s.Bonded > 0 {
		note := "it votes; starling stake release unbonds it"
		if market.Slot(s.Frozen) >= s.Slot {
			note = "it voted and cannot be released before " + l.When(s.Slot, market.Slot(s.Frozen))
		}
		t.Row("bonded", text(s.Bonded), note)
	}
	switch {
	case s.withdrawable:
		t.Row("unbonding", text(s.Unbonding), "can be withdrawn now: starling stake withdraw")
	case s.Unbonding > 0:
		t.Row("unbonding", text(s.Unbonding), "can be withdrawn from "+l.When(s.Slot, market.Slot(s.Ready)))
	}
	if s.Slashed > 0 {
		t.Row("slashed", l.When(s.Slot, market.Slot(s.Slashed)))
	}
}

func stakeRemove(a *cli.App) *cobra.Command {
	var o StakeOptions
	c := &cobra.Command{
		Use:   "remove AMOUNT|all",
		Short: "Unbond stake for a later withdrawal",
		Long: `Takes AMOUNT out of the stake. It waits for the network's unbonding time, in which evidence can still
slash it, and is then withdrawn with starling stake withdraw. The wait of an amount that was removed earlier and not
withdrawn starts again. The owner signs.`,
		Example: `  starling stake remove 100
  starling stake remove all`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l, s, err := stakes(a, c.Context(), o)
			if err != nil {
				return err
			}
			n, err := stakeUpTo(l, s, args[0], s.Stake-s.Bonded)
			if err != nil {
				return err
			}
			return unstake(l, c.Context(), s, n)
		},
	}
	o.Flags(c)
	o.ProviderFlag(c)
	return c
}

func unstake(l *Chain, ctx context.Context, s StakeInfo, n uint64) error {
	owner, err := l.Signer(s.Owner, "the provider's owner")
	switch {
	case err != nil:
		return err
	case n > s.Stake-s.Bonded && n <= s.Stake:
		return cli.WithHint(cli.Usagef("%s of the stake is bonded", l.Text(s.StakeMint, s.Bonded, s.Terms)),
			"starling stake release")
	case n == 0 || n > s.Stake:
		return cli.WithHint(cli.Usagef("%s cannot be taken out of a stake of %s", l.Text(s.StakeMint, n, s.Terms),
			l.Text(s.StakeMint, s.Stake, s.Terms)), "starling stake status")
	}
	if s.Unbonding > 0 {
		l.App.Say("%s was removed earlier; its wait starts again now", l.Text(s.StakeMint, s.Unbonding, s.Terms))
	}
	call := program.RequestUnstake{Owner: s.Owner, Network: l.Genesis.Escrow, Provider: s.Account, Amount: n}
	err = l.Send(ctx, fmt.Sprintf("taking %s out of the stake of %s", l.Text(s.StakeMint, n, s.Terms), s.Provider),
		[]svm.Instruction{call.Instruction(l.Genesis.Program)}, owner)
	if err == nil {
		l.App.Say("%s can be withdrawn from %s: starling stake withdraw", l.Text(s.StakeMint, n+s.Unbonding, s.Terms),
			l.When(s.Slot, s.Slot+market.Slot(s.unbondSlots)))
	}
	return err
}

func stakeWithdraw(a *cli.App) *cobra.Command {
	var o StakeOptions
	c := &cobra.Command{
		Use:   "withdraw",
		Short: "Withdraw stake after its unbonding time",
		Long: `Pays the unbonded stake to the owner's wallet; a missing token account is created. The owner
signs.`,
		Example: `  starling stake withdraw`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			l, s, err := stakes(a, c.Context(), o)
			if err != nil {
				return err
			}
			owner, err := l.Signer(s.Owner, "the provider's owner")
			switch {
			case err != nil:
				return err
			case s.Unbonding == 0:
				return cli.WithHint(cli.Usagef("no stake is unbonding"), "starling stake remove AMOUNT")
			case !s.withdrawable:
				return &cli.Error{Code: cli.ExitPayment, Err: fmt.Errorf("%s can be withdrawn from %s, not yet",
					l.Text(s.StakeMint, s.Unbonding, s.Terms), l.When(s.Slot, market.Slot(s.Ready)))}
			}
			to := svm.TokenAccount(s.Owner, s.StakeMint)
			call := program.Withdraw{Owner: s.Owner, Provider: s.Account,
				Vault: account.StakeAddress(l.Genesis.Program, s.Account), Destination: to, Mint: s.StakeMint}
			return l.Send(c.Context(), fmt.Sprintf("withdrawing %s to %s", l.Text(s.StakeMint, s.Unbonding, s.Terms),
				s.Owner),
				[]svm.Instruction{svm.OpenTokenAccount(l.Peer.Key(), s.Owner, s.StakeMint),
					call.Instruction(l.Genesis.Program)}, owner)
		},
	}
	o.Flags(c)
	o.ProviderFlag(c)
	return c
}
