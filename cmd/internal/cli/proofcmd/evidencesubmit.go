package proofcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/moneycmd"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/evidence"
)

func evidenceSubmit(a *cli.App) *cobra.Command {
	var o moneycmd.StakeOptions
	c := &cobra.Command{
		Use:   "submit FILE",
		Short: "Have the stake taken of a double seller or of a liar in audits",
		Long: `Checks the file as evidence check does, shows both receipts, or what the liar signed, to the network's program, and has it take the
stake. Says who got what. The peer's key pays the fees and the rent of two accounts, which comes back at the end, and gets the
reporter's share; missing token accounts of the buyers are opened at its cost. The peer need not run.

No stake is taken for results that differ: the program cannot tell which of them is false.

What the program would refuse is said before anything is paid for. If it breaks off, call it again: nothing is done twice. If the
provider was slashed before, by whomever, it says so and ends well.`,
		Example: `  starling evidence submit double.json`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := parseEvidence(args[0])
			if err != nil {
				return err
			}
			submit, err := submitting(p)
			if err != nil {
				return err
			}
			l, err := moneycmd.OpenProgram(a, o.Options)
			if err != nil {
				return err
			}
			if l.Genesis.Hash() != p.Genesis.Hash() {
				return cli.Usagef("the evidence is of network %s, this peer is on %s", p.Genesis.Tag(), l.Genesis.Tag())
			}
			return submitEvidence(l, c.Context(), submit)
		},
	}
	o.ReadFlags(c)
	return c
}

// submission is a proof that was checked, on its way to the chain.
type submission struct {
	id   string
	whom string
	do   func(ctx context.Context, c evidence.Chain, reporter sign.Key) (evidence.Outcome, error)
}

// submitting checks a proof, and says how it is submitted.
func submitting(p evidence.Proof) (submission, error) {
	switch {
	case len(p.Dissent) > 0:
		return submission{}, cli.WithHint(cli.Usagef("no stake is taken for results that differ"),
			"starling evidence check FILE --program PROGRAM says which of them is false")
	case len(p.Lie) > 0:
		f, err := found(p.CheckLie())
		return submission{f.ID, f.Liar.String(), func(ctx context.Context, c evidence.Chain,
			reporter sign.Key) (evidence.Outcome, error) {
			return evidence.SubmitLie(ctx, c, f, reporter, nil)
		}}, err
	}
	f, err := found(p.Check())
	return submission{f.ID, f.Provider.String(), func(ctx context.Context, c evidence.Chain,
		reporter sign.Key) (evidence.Outcome, error) {
		return evidence.Submit(ctx, c, f, reporter)
	}}, err
}

func submitEvidence(l *moneycmd.Chain, ctx context.Context, s submission) error {
	l.App.Say("submitting evidence %s against %s; fees are paid by %s", s.id, s.whom, l.Peer.Key())
	out, err := s.do(ctx, l, l.Peer.Key())
	switch {
	case errors.Is(err, evidence.ErrNotStaked):
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "the proof holds all the same: keep the file"}
	case errors.Is(err, evidence.ErrNotYet), errors.Is(err, evidence.ErrTooOld), errors.Is(err, evidence.ErrNoAudits):
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
