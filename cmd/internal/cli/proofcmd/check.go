package proofcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/rerun"
	"github.com/starling-network/starling/node/runtime/wasm"
)

// checkOptions are the flags of a check.
type checkOptions struct {
	rpc     []string
	offline bool
	program string
	inputs  []string
}

func (o *checkOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&o.rpc, "rpc", nil, "JSON-RPC address of the Solana cluster; may be repeated")
	f.BoolVar(&o.offline, "offline", false, "do not read the chain")
	f.StringVar(&o.program, "program", "", "for a dispute: the program of the work, to run it again")
	f.StringArrayVar(&o.inputs, "input", nil, "for a dispute: input PATH=FILE; repeatable")
}

// check refuses flags that exclude each other.
func (o *checkOptions) check() error {
	if o.offline && len(o.rpc) > 0 {
		return cli.Usagef("--offline and --rpc exclude each other")
	}
	return nil
}

func proofShow(a *cli.App) *cobra.Command {
	var ref proofRef
	var o checkOptions
	var lease string
	var receipts bool
	c := &cobra.Command{
		Use:   "show PROOF",
		Short: "Check and show a proof of this peer",
		Long: `Checks a proof as proof check does and shows its content, and for an offence the state of the stake.
PROOF is the beginning of a hash (proof ls), or a job. With --receipts it lists the single receipts of a job instead,
with --lease the receipts of one lease.`,
		Example: `  starling proof show 4f0c21aa
  starling proof show jk3v5q2a --lease 5f0c21aa -o json
  starling proof show jk3v5q2a --kind probes
  starling proof show 4f0c21aa9b3e5d71… --of 7xKX…gAsU`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if receipts || lease != "" {
				return listReceipts(a, c.Context(), args[0], lease)
			}
			f, e, err := find(a, c.Context(), args[0], ref)
			if err != nil {
				return err
			}
			return showProof(a, c.Context(), f, e, o)
		},
	}
	ref.flags(c)
	o.flags(c)
	c.Flags().BoolVar(&receipts, "receipts", false, "list the receipts of a job")
	c.Flags().StringVar(&lease, "lease", "", "list the receipts of one lease, by the start of its id")
	return c
}

func proofCheck(a *cli.App) *cobra.Command {
	var ref proofRef
	var o checkOptions
	var keep bool
	c := &cobra.Command{
		Use:        "check FILE|PROOF",
		SuggestFor: []string{"verify"},
		Short:      "Check a proof and show its content",
		Long: `Checks every signature and every rule of a proof, from a file of proof export or from this peer. The
check trusts no peer, and without anchors it needs no network. The output lists the checked and the unchecked rules. The
first violated rule is named, and the exit code is 1.

With --rpc, or if this home directory's configuration names an endpoint and is on the same network, it also reads
anchors from the chain: that the root of all receipts of a job, or of an audit's record, is there, and since which
slot.

For a dispute it checks that each provider signed its result for the same work in the last receipt of its lease. With
--program, and --input for each input of the work, it runs the work again on this machine, on files with the digests of
the proof, and names the provider with a different result. The exit code is 0 even if no result differs.

With --keep the running peer checks and keeps the proof as its own: it publishes and submits a fraud by itself.`,
		Example: `  starling proof check receipts.json --rpc https://rpc.example
  starling proof check jk3v5q2a -o json
  starling proof check results.json --program prime.wasm --input /in/data=data.bin`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			f, e, err := named(a, c.Context(), args[0], ref)
			if err != nil {
				return err
			}
			if err := showProof(a, c.Context(), f, e, o); err != nil || !keep {
				return err
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			_, err = api.KeepProof.Call(c.Context(), client, f)
			return err
		},
	}
	ref.flags(c)
	o.flags(c)
	c.Flags().BoolVar(&keep, "keep", false, "have the running peer keep the proof too")
	return c
}

// named returns the proof in a file, or the proof from find if there is no such file.
func named(a *cli.App, ctx context.Context, name string, r proofRef) (proof.File, *proof.Entry, error) {
	f, found, err := readProof(name)
	if found {
		return f, nil, err
	}
	return find(a, ctx, name, r)
}

// holds checks a proof. Its error states that an invalid proof proves nothing.
func holds(f proof.File) (proof.Finding, error) {
	found, err := f.Check()
	if err != nil {
		err = fmt.Errorf("the proof does not hold: %w", err)
	}
	return found, err
}

// showProof checks a proof, on chain too if it is available, and shows its content.
func showProof(a *cli.App, ctx context.Context, f proof.File, e *proof.Entry, o checkOptions) error {
	found, err := holds(f)
	if err != nil {
		return err
	}
	if o.program != "" || len(o.inputs) > 0 {
		if err := runAgain(ctx, found, o); err != nil {
			return err
		}
	}
	if err := checkOnChain(a, ctx, &found, o); err != nil {
		return err
	}
	s := shownProof{Finding: found}
	if e != nil {
		s.State, s.Why, s.Outcome = e.State, e.Why, e.Outcome
	}
	if err := a.Show(s, func(t *cli.Table) { proofTable(a, t, s, e) }); err != nil {
		return err
	}
	return found.Fault
}

func proofTable(a *cli.App, t *cli.Table, s shownProof, e *proof.Entry) {
	s.Rows(func(cells ...any) { t.Row(cells...) })
	t.Row("network", s.Network, "genesis "+s.GenesisHash.String(), networkRemark(a, s.GenesisHash))
	if e == nil || e.State == "" {
		return
	}
	t.Row("stake", e.StateText())
	if s.Outcome != nil {
		for _, id := range s.Outcome.Transactions {
			t.Row("transaction", id)
		}
	}
}

// networkRemark returns a remark if the network of a proof is not this home directory's.
func networkRemark(a *cli.App, genesis sign.Hash) string {
	home, err := a.Home()
	if err != nil {
		return ""
	}
	switch g, err := config.LoadGenesis(home); {
	case err != nil:
		return "compare it with the genesis of the intended network"
	case g.Hash() != genesis:
		return "NOT the network of this peer"
	}
	return "the network of this peer"
}

// checkOnChain checks the anchors, if the options or the home directory name an endpoint of the chain.
func checkOnChain(a *cli.App, ctx context.Context, f *proof.Finding, o checkOptions) error {
	if f.Chain == "" { // the proof has no anchors
		return nil
	}
	l, why, err := chainAtHand(a, f.Genesis(), o)
	if err != nil {
		return err
	}
	if l == nil && !f.Genesis().Free {
		f.Chain = why
		return nil
	}
	err = chainAway(f.CheckChain(ctx, l))
	if _, broken := errors.AsType[*proof.BrokenRule](err); broken {
		return fmt.Errorf("the proof does not hold: %w", err)
	}
	return err
}

// chainAtHand returns the chain to check anchors on, if the options or the home directory name an endpoint; else nil
// and the reason.
func chainAtHand(a *cli.App, of market.Genesis, o checkOptions) (proof.Chain, string, error) {
	rpc := o.rpc
	switch {
	case of.Free:
		return nil, "", nil
	case o.offline:
		return nil, "not asked: --offline; whether and when this was paid or anchored is not checked", nil
	case len(rpc) == 0:
		home, err := a.Home()
		if err != nil {
			return nil, "", err
		}
		g, err := config.LoadGenesis(home)
		if err != nil || g.Hash() != of.Hash() {
			return nil, "not asked: give --rpc", nil
		}
		cfg, err := config.Load(filepath.Join(home, config.FileConfig))
		if err != nil {
			return nil, "", err
		}
		if rpc = cfg.Solana.RPC; len(rpc) == 0 {
			return nil, "not asked: the configuration names no endpoint, give --rpc", nil
		}
	}
	open := a.OpenChain
	if open == nil {
		open = openSolana
	}
	l, err := open(rpc, of)
	if err != nil {
		return nil, "", &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	return l, "", nil
}

// chainAway adds a remedy to the error of an unreachable chain.
func chainAway(err error) error {
	if errors.Is(err, proof.ErrChain) {
		return &cli.Error{
			Code: cli.ExitPayment, Err: err,
			Hint: "give another endpoint with --rpc, or check without the chain with --offline",
		}
	}
	return err
}

// openSolana reads a cluster.
func openSolana(rpc []string, g market.Genesis) (proof.Chain, error) { return solana.NewReader(rpc, g) }

// files are the files of a work.
func (o checkOptions) files() (rerun.Files, error) {
	f := rerun.Files{Program: o.program, Inputs: map[string]string{}}
	for _, text := range o.inputs {
		at, file, ok := strings.Cut(text, "=")
		if _, twice := f.Inputs[at]; !ok || file == "" || twice {
			return f, cli.Usagef("--input %.80q: want PATH=FILE, each path once", text)
		}
		f.Inputs[at] = file
	}
	if f.Program == "" {
		return f, cli.Usagef("--input is for running the work again, which needs --program")
	}
	return f, nil
}

// runAgain runs the work of a dispute in the embedded runtime, in a directory that is removed, and completes the
// finding.
func runAgain(ctx context.Context, f proof.Finding, o checkOptions) error {
	d, ok := f.Detail.(*proof.DisputeDetail)
	if !ok {
		return cli.Usagef("the proof is not a dispute: there is no work to run again")
	}
	files, err := o.files()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "starling-proof-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rt, err := wasm.New(wasm.Config{CacheDir: filepath.Join(dir, "cache")})
	if err != nil {
		return err
	}
	defer rt.Close()
	r, err := rerun.Work(ctx, rt, d.Work, files, dir)
	if err != nil {
		return err
	}
	d.Again = &proof.Rerun{Result: r, Wrong: f.Content().(proof.Dispute).Against(r)}
	return nil
}
