package proofcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/moneycmd"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/slash"
)

func proofSubmit(a *cli.App) *cobra.Command {
	var o moneycmd.StakeOptions
	c := &cobra.Command{
		Use:   "submit FILE",
		Short: "Submit a proof, to have the offender's stake slashed",
		Long: `Checks the file as proof check does and submits it to the network's program: both receipts of a double
sale, or the signed statement of a fraud. The program slashes the stake, and the command shows the payments. The peer's
key pays the fees and the rent of two accounts, which is refunded at the end, and gets the submitter's share. It also
pays for missing token accounts of the buyers. The peer need not run.

No stake is slashed for a dispute: the program cannot determine which result is false.

The command names the reasons for which the program would refuse before it pays anything. If it is interrupted, run it
again: no step is repeated. If the provider was slashed before, it reports that and succeeds.`,
		Example: `  starling proof submit double.json`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f, found, err := readProof(args[0])
			if !found {
				return cli.Usagef("%s: no such file: starling proof export writes one", cli.Clip(args[0], 70))
			}
			if err != nil {
				return err
			}
			switch f.Kind {
			case proof.KindDoubleSale, proof.KindFraud:
			case proof.KindDispute:
				return cli.WithHint(cli.Usagef("no stake is slashed for a dispute"),
					"starling proof check FILE --program PROGRAM names the provider of the false result")
			default:
				return cli.Usagef("no stake is slashed for %s", f.Kind.Text())
			}
			x, err := holds(f)
			if err != nil {
				return err
			}
			l, err := moneycmd.OpenProgram(a, o.Options)
			if err != nil {
				return err
			}
			if l.Genesis.Hash() != f.Genesis.Hash() {
				return cli.Usagef("the proof is of network %s, this peer is on %s", f.Genesis.Tag(), l.Genesis.Tag())
			}
			return submit(l, c.Context(), x)
		},
	}
	o.ReadFlags(c)
	return c
}

func submit(l *moneycmd.Chain, ctx context.Context, f proof.Finding) error {
	l.App.Say("submitting proof %s: %s; fees are paid by %s", f.Hash.Short(), f.Proves, l.Peer.Key())
	out, err := slash.Submit(ctx, l, f, l.Peer.Key())
	switch {
	case errors.Is(err, slash.ErrNotStaked):
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "the proof is still valid: keep the file"}
	case errors.Is(err, slash.ErrNotYet), errors.Is(err, slash.ErrTooOld), errors.Is(err, slash.ErrNoAudits):
		return &cli.Error{Code: cli.ExitFailed, Err: err}
	case err != nil:
		return l.Explain(err)
	}
	n, err := l.Network(ctx)
	if err != nil {
		return l.Explain(err)
	}
	return l.App.Show(out, func(t *cli.Table) {
		text := func(amount uint64) string { return l.Text(out.Mint, amount, n.Params) }
		if out.Already {
			t.Row("done before", fmt.Sprintf(
				"the provider was slashed in slot %d, and nothing from before then counts again", out.Slot))
			return
		}
		t.Row("slashed", out.Provider, fmt.Sprintf("slot %d", out.Slot))
		t.Row("taken", text(out.Taken))
		for _, p := range out.Paid {
			t.Row("buyer", p.Wallet, "gets "+text(p.Amount))
		}
		t.Row("submitter", out.Reward.Wallet, "gets "+text(out.Reward.Amount))
		t.Row("burned", text(out.Burned))
		for _, id := range out.Transactions {
			t.Row("transaction", id)
		}
	})
}
