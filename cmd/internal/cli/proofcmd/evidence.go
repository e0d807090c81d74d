package proofcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/evidence"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit"
)

// NewEvidence makes the command `starling evidence`.
func NewEvidence(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "evidence",
		Short: "Proofs of double sale, of lies in audits, of results that differ",
		Long: `Every peer publishes the leases that it buys and sells, with receipts, and looks at what others publish of the same units. When
two receipts of one provider cover one unit in one slot, for two leases, that is a proof, which the peer keeps. Anyone can check
it without asking anybody, and on a network with Starling's program anyone can submit it: the provider loses all its stake. Half of
it burns at least, the two buyers get what they had paid back, as far as it goes, and who submits gets a share of the rest.

Peers that judge in audits keep a proof of whoever lied to them there: a provider that showed an entry of its products that is wrong,
or gave two answers to one question, or a member of the committee that passed such a thing. They tell the network, and one of them
submits it by itself, pays the fees and gets an eighth of the stake; the rest burns.

Where a job's results are checked (run --verify replicate) and two providers signed different ones, their last receipts are a proof
that one of them is false. Running the program again says which: evidence check --program. The buyer remembers it against that provider;
no stake is taken for it.`,
		Example: `  starling evidence ls
  starling evidence show 4f0c21aa
  starling evidence export 4f0c21aa9b3e5d71 double.json
  starling evidence check double.json
  starling evidence submit double.json`,
		GroupID: cli.GroupMoney,
		Args:    cli.OnlyCommands,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(evidenceLs(a), evidenceShow(a), evidenceExport(a), evidenceCheck(a), evidenceSubmit(a),
		evidenceWatch(a))
	return c
}

func evidenceLs(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List the proofs that this peer keeps",
		Example: `  starling evidence ls -o json`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			all, err := allProofs(c.Context(), client)
			if err != nil {
				return err
			}
			return a.Show(all.listed(), all.tables)
		},
	}
}

func evidenceExport(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "export ID FILE",
		Short: "Write a proof into a file",
		Long: `Writes one of the proofs of evidence ls, with the genesis of its network, as a JSON file that anybody can check and submit.
The beginning of its id is enough. FILE may be - for standard output.`,
		Example: `  starling evidence export 4f0c21aa9b3e5d71 double.json`,
		Args:    cli.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			k, _, err := keptProof(a, c.Context(), args[0])
			if err != nil {
				return err
			}
			if file, err := a.Export(args[1], k.proof); err != nil || !file {
				return err
			}
			a.Say("wrote the proof %s to %s", k.against, args[1])
			return nil
		},
	}
}

func evidenceCheck(a *cli.App) *cobra.Command {
	var again rerunOptions
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a proof, and say what it shows",
		Long: `Checks everything in the file and asks nobody: that the provider and the buyers signed both receipts on the network named
there, that they are of two leases, that the unit is one of the units of both, and that they share a slot. The first rule that is
broken is named, and the exit code is 1.

Of a lie in an audit it checks that the liar signed, and computes again what is said to be wrong.

Of a proof that results differ it checks that each provider signed its result for the same work in the last receipt of its lease. With
--program, and --input for each input of the work, it runs the work again on this machine, on files whose digests must be those of the
proof, and says whose result is another. The exit code is 0 also where nobody's is.`,
		Example: `  starling evidence check double.json
  starling evidence check results.json --program prime.wasm --input /in/data=data.bin`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := parseEvidence(args[0])
			if err != nil {
				return err
			}
			return checkEvidence(a, c.Context(), p, again)
		},
	}
	again.flags(c)
	return c
}

// evidenceShow shows a proof that the peer keeps.
func evidenceShow(a *cli.App) *cobra.Command {
	var again rerunOptions
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Check a proof that this peer keeps, and say what it shows",
		Long: `Does with one of the proofs of evidence ls what evidence check does with a file. The beginning of its id is enough. Of a lie in an
audit it says too what became of the stake.`,
		Example: `  starling evidence show 4f0c21aa`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			k, all, err := keptProof(a, c.Context(), args[0])
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(all.lies, func(l evidence.KeptLie) bool { return l.ID == k.id }); i >= 0 {
				return showLie(a, k.proof, &all.lies[i])
			}
			return checkEvidence(a, c.Context(), k.proof, again)
		},
	}
	again.flags(c)
	return c
}

// keptProof is the proof that an id, or its beginning, names, among all that the peer keeps.
func keptProof(a *cli.App, ctx context.Context, id string) (exported, proofs, error) {
	client, g, err := a.Known()
	if err != nil {
		return exported{}, proofs{}, err
	}
	all, err := allProofs(ctx, client)
	if err != nil {
		return exported{}, all, err
	}
	k, err := cli.FindOne(all.exportable(g), id, func(k exported) string { return k.id })
	return k, all, cli.WithHint(err, "starling evidence ls")
}

// checkEvidence checks a proof of any kind and shows its content.
func checkEvidence(a *cli.App, ctx context.Context, p evidence.Proof, again rerunOptions) error {
	switch {
	case len(p.Dissent) > 0:
		return showDissent(a, ctx, p, again)
	case again.given():
		return cli.Usagef("this is no proof that results differ: there is nothing to run again")
	case len(p.Lie) > 0:
		return showLie(a, p, nil)
	}
	f, err := found(p.Check())
	if err != nil {
		return err
	}
	return a.Show(f, func(t *cli.Table) {
		t.Row("proven", fmt.Sprintf("provider %s sold one unit to two at a time", f.Provider))
		t.Row("unit", f.Unit)
		long := ""
		if d := f.Lasted(); d > 0 {
			long = fmt.Sprintf(", %v", d)
		}
		t.Row("when", fmt.Sprintf("slots %d to %d%s, and perhaps longer", f.From, f.To, long))
		for _, s := range f.Sales {
			t.Row("sold to", fmt.Sprintf("%s under lease %s: receipt %d of slots %d to %d, %s owed by then", s.Buyer,
				s.Lease.Short(), s.Seq, s.From, s.To,
				f.Genesis.FormatAmount(s.Paid)))
		}
		t.Row("network", f.Network, "genesis "+f.GenesisHash.String(), whose(a, f.GenesisHash))
		t.Row("checked", "four signatures, two leases, one provider, a slot in common, the unit in both")
		t.Row("not checked", "whether the provider has anything at stake: evidence submit asks the chain")
	})
}

// whose returns a remark if the network of a proof is not this home directory's.
func whose(a *cli.App, genesis sign.Hash) string {
	home, err := a.Home()
	if err != nil {
		return ""
	}
	switch g, err := node.LoadGenesis(home); {
	case err != nil:
		return "compare it with the genesis of the network that you mean"
	case g.Hash() != genesis:
		return "NOT the network of this peer"
	}
	return "the network of this peer"
}

// parseEvidence reads an evidence file.
func parseEvidence(path string) (evidence.Proof, error) {
	b, err := cli.ReadFile(path, evidence.MaxFile)
	if err != nil {
		return evidence.Proof{}, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	p, err := evidence.ParseProof(b)
	if err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// found wraps the error of an invalid proof: it proves nothing, and why.
func found[T any](f T, err error) (T, error) {
	if rule, broken := errors.AsType[*verify.RuleError](err); broken {
		return f, fmt.Errorf("it proves nothing: rule %s is broken: %s", rule.Rule, rule.Detail)
	}
	if rule, broken := errors.AsType[*audit.RuleError](err); broken {
		return f, fmt.Errorf("it proves nothing: rule %s is broken: %s", rule.Rule, rule.Detail)
	}
	if err != nil {
		return f, fmt.Errorf("it proves nothing: %w", err)
	}
	return f, nil
}

func evidenceWatch(a *cli.App) *cobra.Command {
	var end bool
	c := &cobra.Command{
		Use:   "watch [PROVIDER UNIT]",
		Short: "Have this peer look after a unit that it does not trade in",
		Long: `Looks every ten minutes at what is published about a unit, until --end. A unit is named by its id, as the leases and receipts of
whoever rented it have it. Units that this peer buys or sells are looked after anyhow. Without arguments it lists what is watched.`,
		Example: `  starling evidence watch 7xKX…gAsU 5f0c21aa…`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && !end {
				return nil
			}
			return cli.ExactArgs(2)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			var units []evidence.Watched
			if len(args) == 0 {
				units, err = api.ListWatched.Call(c.Context(), client, api.None{})
			} else {
				var of evidence.Watched
				if of.Provider, err = a.PeerKey(c.Context(), args[0]); err != nil {
					return err
				}
				h, parseErr := sign.ParseHash(args[1])
				if parseErr != nil {
					return cli.Usagef("%.80q is no unit's id: 64 hexadecimal digits", args[1])
				}
				of.Unit = market.UnitID(h)
				watch := api.WatchUnit
				if end {
					watch = api.UnwatchUnit
				}
				units, err = watch.Call(c.Context(), client, of)
			}
			if err != nil {
				return err
			}
			return a.Show(units, func(t *cli.Table) {
				t.Head("PROVIDER", "UNIT")
				for _, w := range units {
					t.Row(w.Provider, w.Unit)
				}
			})
		},
	}
	c.Flags().BoolVar(&end, "end", false, "look after it no longer")
	return c
}
