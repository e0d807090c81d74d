package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/evidence"
)

func evidenceSubmit(a *App) *cobra.Command {
	var o stakeOptions
	c := &cobra.Command{
		Use:   "submit FILE",
		Short: "Have the stake of a provider taken that sold a unit twice",
		Long: `Checks the file as evidence check does, shows both receipts to the network's program, and has it take the provider's stake. Says
who got what. The peer's key pays the fees and the rent of two accounts, which comes back at the end, and gets the reporter's share;
missing token accounts of the buyers are opened at its cost. The peer need not run.

What the program would refuse is said before anything is paid for. If it breaks off, call it again: nothing is done twice. If the
provider was slashed before, by whomever, it says so and ends well.`,
		Example: `  starling evidence submit double.json
  starling evidence submit double.json --provider 7xKX…gAsU   (it has another key since it registered)`,
		Args: exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := readEvidence(args[0])
			if err != nil {
				return err
			}
			l, err := a.programChain(o.chainOptions)
			if err != nil {
				return err
			}
			if l.g.Hash() != f.GenesisHash {
				return Usagef("the evidence is of network %s, this peer is on %s", f.Network, l.g.Tag())
			}
			return l.submitEvidence(c.Context(), f, o.first)
		},
	}
	o.readFlags(c)
	o.firstFlag(c)
	c.Flags().Lookup("provider").Usage = "the peer key that the provider registered with (default the one that signed the receipts)"
	return c
}

func (l *onChain) submitEvidence(ctx context.Context, f evidence.Finding, provider string) error {
	var first sign.Key
	if provider != "" {
		var err error
		if first, err = address("--provider", provider); err != nil {
			return err
		}
	}
	l.a.say("submitting evidence %s against provider %s; fees are paid by %s", f.ID, f.Provider, l.peer.Key())
	out, err := evidence.Submit(ctx, l, f, l.peer.Key(), first)
	switch {
	case errors.Is(err, evidence.ErrNotStaked), errors.Is(err, evidence.ErrOtherKey):
		return &Error{Code: ExitFailed, Err: err, Hint: "the proof holds all the same; if the provider registered with another key, name that with --provider"}
	case errors.Is(err, evidence.ErrNotYet), errors.Is(err, evidence.ErrTooOld):
		return &Error{Code: ExitFailed, Err: err}
	case err != nil:
		return l.explain(err)
	}
	n, err := l.Network(ctx)
	if err != nil {
		return l.explain(err)
	}
	return l.a.Show(out, func(t *Table) {
		text := func(amount uint64) string { return l.text(out.Mint, amount, n.Params) }
		if out.Already {
			t.Row("done before", fmt.Sprintf("the provider was slashed in slot %d, and nothing from before then counts again", out.Slot))
			return
		}
		t.Row("slashed", out.Provider, fmt.Sprintf("slot %d", out.Slot))
		t.Row("taken", text(out.Taken))
		for _, p := range out.Paid {
			t.Row("buyer", p.Wallet, "gets "+text(p.Amount))
		}
		t.Row("reporter", out.Reward.Wallet, "gets "+text(out.Reward.Amount))
		t.Row("burned", text(out.Burned))
		for _, id := range out.Transactions {
			t.Row("transaction", id)
		}
	})
}
