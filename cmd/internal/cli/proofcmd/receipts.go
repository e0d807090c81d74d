// Package proofcmd has the commands that show, check, export and submit proofs.
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
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify"
)

// NewReceipts makes the command `starling receipts`.
func NewReceipts(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "receipts",
		Short: "Show, export and check what proves a job's cost",
		Long: `Every metering interval leaves a receipt that provider and buyer have signed, chained to the one before, and a voucher for
its price. When a job is over, a Merkle root over all its receipts goes on chain, the anchor: a transaction of
Starling's program. On a free network nothing is paid and nothing anchored; the receipts are there all the same.`,
		Example: `  starling receipts ls jk3v5q2a
  starling receipts export jk3v5q2a receipts.json
  starling receipts verify receipts.json --rpc https://rpc.example`,
		GroupID: cli.GroupMoney,
		Args:    cli.OnlyCommands,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(receiptsLs(a), receiptsShow(a), receiptsExport(a), receiptsVerify(a))
	return c
}

func receiptsLs(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "ls ID",
		Short:   "List a job's leases with their receipts and cost",
		Example: `  starling receipts ls jk3v5q2a`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			g, _, leases, err := accounts(a, c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.Show(leases, func(t *cli.Table) {
				t.Head("LEASE", "RANK", "EPOCH", "PROVIDER", "ROUTE", "STATE", "RECEIPTS", "SLOTS", "OWED", "REASON")
				var sum market.Amount
				total := 0
				for _, l := range leases {
					slots := uint64(0)
					if n := len(l.Receipts); n > 0 {
						slots = uint64(l.Receipts[n-1].To - l.Receipts[0].From)
					}
					sum += l.Owed
					total += len(l.Receipts)
					t.Row(l.Lease.Short(), l.Rank, l.Epoch, l.Provider.Short(), l.Route, l.State, len(l.Receipts),
						slots, g.FormatAmount(l.Owed), cli.Clip(l.Reason, 60))
				}
				t.Row()
				t.Row(cli.Count(total, "receipt") + ", owed " + g.FormatAmount(sum))
			})
		},
	}
}

func receiptsShow(a *cli.App) *cobra.Command {
	var lease string
	c := &cobra.Command{
		Use:   "show ID",
		Short: "List a job's receipts",
		Example: `  starling receipts show jk3v5q2a
  starling receipts show jk3v5q2a --lease 5f0c21aa -o json`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			g, _, leases, err := accounts(a, c.Context(), args[0])
			if err != nil {
				return err
			}
			var shown []verify.Receipt
			rank := map[market.LeaseID]uint32{}
			for _, l := range leases {
				if strings.HasPrefix(l.Lease.String(), lease) {
					shown = append(shown, l.Receipts...)
					rank[l.Lease] = l.Rank
				}
			}
			if len(rank) == 0 && lease != "" {
				return cli.WithHint(cli.Usagef("--lease: the job has no lease %q", lease), "starling receipts ls %s",
					args[0])
			}
			return a.Show(shown, func(t *cli.Table) {
				t.Head("LEASE", "RANK", "SEQ", "SLOTS", "CPU", "AMOUNT", "CUMULATIVE", "HASH", "")
				for _, r := range shown {
					final := ""
					if r.Final() {
						final = "final"
					}
					t.Row(r.Lease.Short(), rank[r.Lease], r.Seq, fmt.Sprintf("%d–%d", r.From, r.To),
						fmt.Sprintf("%dms", r.CPUMillis),
						g.FormatAmount(r.Amount), g.FormatAmount(r.Cumulative), r.Hash().Short(), final)
				}
			})
		},
	}
	c.Flags().StringVar(&lease, "lease", "", "of one lease; the beginning of its id is enough")
	return c
}

func receiptsExport(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "export ID FILE",
		Short: "Write all that proves a job's cost into one file",
		Long: `Writes a JSON file with the network's genesis, the job's leases, key sets, vouchers and receipts as signed, and the
transactions that settled it. Anyone can check it with receipts verify, without this peer. FILE may be - for standard output.`,
		Example: `  starling receipts export jk3v5q2a receipts.json`,
		Args:    cli.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			g, j, leases, err := accounts(a, c.Context(), args[0])
			if err != nil {
				return err
			}
			p, err := proof.New(g, j, leases)
			if err != nil {
				return err
			}
			if file, err := a.Export(args[1], p); err != nil || !file {
				return err
			}
			a.Say("wrote %s of %s to %s", cli.Count(j.Receipts, "receipt"), cli.Count(len(leases), "lease"), args[1])
			if !j.State.Ended() {
				a.Say("job %s is %s: more receipts and its transactions will come", j.ID, j.State)
			}
			return nil
		},
	}
}

// verifyOptions are the flags of receipts verify.
type verifyOptions struct {
	rpc     []string
	offline bool
}

func receiptsVerify(a *cli.App) *cobra.Command {
	var o verifyOptions
	c := &cobra.Command{
		Use:   "verify FILE|ID",
		Short: "Check receipts: every signature, chain, voucher and sum, and the anchor on chain",
		Long: `Checks a file of receipts export, or a job of the running peer: that both signed each lease, that the receipts form one
chain with the right slots and amounts, each signed by both, that the vouchers are signed and cover them. Nobody needs to be
trusted for it.

With --rpc, or when this home directory's configuration names an endpoint and is on the same network, it also reads the
anchors from the chain and checks that they commit to exactly these receipts: the program's account of their root, or, when
that was closed, the transaction that made it. On a free network there is no chain to ask. The output says what was checked and what was not. The first rule that is broken is named, and the exit code is 1.

A file of peers export has receipts of leases between others: of each it checks both signatures, its place under its anchor's root, and
that the transaction that it names has that root.`,
		Example: `  starling receipts verify receipts.json
  starling receipts verify receipts.json --rpc https://rpc.example
  starling receipts verify jk3v5q2a -o json`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if f, ok := readFacts(args[0]); ok {
				return verifyFacts(a, c.Context(), f, o)
			}
			p, err := readProof(a, c.Context(), args[0])
			if err != nil {
				return err
			}
			v, err := p.Check()
			if err != nil {
				return fmt.Errorf("the receipts do not hold: %w", err)
			}
			if err := checkOnChain(a, c.Context(), &v, o); err != nil {
				if _, own := errors.AsType[*proof.BrokenRule](err); own {
					return fmt.Errorf("the receipts do not hold: %w", err)
				}
				return err
			}
			return a.Show(v, func(t *cli.Table) { verdictTable(t, v) })
		},
	}
	o.flags(c)
	return c
}

func (o *verifyOptions) flags(c *cobra.Command) {
	c.Flags().StringArrayVar(&o.rpc, "rpc", nil, "JSON-RPC address of the Solana cluster; may be repeated")
	c.Flags().BoolVar(&o.offline, "offline", false, "ask no chain")
}

// check says when the flags exclude each other.
func (o *verifyOptions) check() error {
	if o.offline && len(o.rpc) > 0 {
		return cli.Usagef("--offline and --rpc exclude each other")
	}
	return nil
}

// accounts asks the peer for a job and its leases.
func accounts(a *cli.App, ctx context.Context, id string) (g market.Genesis, j buyer.Job, leases []buyer.LeaseAccount,
	err error) {
	var client *api.Client
	if client, err = a.Client(); err != nil {
		return g, j, nil, err
	}
	if g, err = a.Genesis(); err != nil {
		return g, j, nil, err
	}
	// The job first: its transactions come after its last receipt.
	if j, err = api.GetJob.Call(ctx, client, api.ByID{ID: id}); err != nil {
		return g, j, nil, err
	}
	leases, err = api.JobReceipts.Call(ctx, client, api.ByID{ID: j.ID})
	return g, j, leases, err
}

// readProof reads a receipt file, or gathers the proof of a job when there is no such file.
func readProof(a *cli.App, ctx context.Context, what string) (proof.Proof, error) {
	b, err := cli.ReadFile(what, proof.Max)
	if err == nil {
		p, err := proof.Parse(b)
		if err != nil {
			return p, fmt.Errorf("%s: %w", what, err)
		}
		return p, nil
	}
	if !errors.Is(err, os.ErrNotExist) || strings.ContainsAny(what, `./\`) {
		return proof.Proof{}, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	g, j, leases, err := accounts(a, ctx, what)
	if err != nil {
		return proof.Proof{}, err
	}
	return proof.New(g, j, leases)
}

// checkOnChain checks the anchors, where the options or the home directory say how to reach the chain.
func checkOnChain(a *cli.App, ctx context.Context, v *proof.Verdict, o verifyOptions) error {
	if v.Genesis.Free {
		return v.CheckAnchors(ctx, nil)
	}
	l, why, err := chainAtHand(a, v.Genesis, o)
	if err != nil || l == nil {
		v.Chain = why
		return err
	}
	return chainAway(v.CheckAnchors(ctx, l))
}

// chainAtHand is the chain to check anchors on, where the options or the home directory say how to reach it; else nil,
// and why not.
func chainAtHand(a *cli.App, of market.Genesis, o verifyOptions) (proof.Chain, string, error) {
	rpc := o.rpc
	switch {
	case o.offline:
		return nil, "not asked: --offline; whether and when this was paid or anchored is not checked", nil
	case len(rpc) == 0:
		home, err := a.Home()
		if err != nil {
			return nil, "", err
		}
		g, err := node.LoadGenesis(home)
		if err != nil || g.Hash() != of.Hash() {
			return nil, "not asked: give --rpc", nil
		}
		cfg, err := node.LoadConfig(filepath.Join(home, node.FileConfig))
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

// chainAway adds a remedy to the error of a chain without answer.
func chainAway(err error) error {
	if errors.Is(err, proof.ErrChain) {
		return &cli.Error{Code: cli.ExitPayment, Err: err,
			Hint: "give another endpoint with --rpc, or check without the chain with --offline"}
	}
	return err
}

// openSolana reads a cluster.
func openSolana(rpc []string, g market.Genesis) (proof.Chain, error) { return solana.NewReader(rpc, g) }

func verdictTable(t *cli.Table, v proof.Verdict) {
	g := v.Genesis
	t.Row("job", v.Job)
	t.Row("network", v.Network)
	if !v.Buyer.IsZero() {
		t.Row("buyer", v.Buyer)
	}
	t.Row()
	t.Row("LEASE", "RANK", "PROVIDER", "PAYOUT", "RECEIPTS", "SLOTS", "EARNED", "OWED", "RESULT")
	for _, l := range v.Leases {
		result := "ok"
		if !l.Final {
			result = "ok, no final receipt"
		}
		t.Row(l.Lease.Short(), l.Rank, l.Provider.Short(), l.Payout.Short(), l.Receipts, l.Slots,
			g.FormatAmount(l.Earned), g.FormatAmount(l.Owed), result)
	}
	t.Row()
	for _, tx := range v.Transactions {
		where := ""
		if tx.Slot > 0 {
			where = fmt.Sprintf("slot %d", tx.Slot)
		}
		t.Row("transaction", tx.ID, where, "anchor "+tx.Anchor)
	}
	for _, anchor := range v.Anchors {
		t.Row("anchored", "by "+anchor.By.String(), fmt.Sprintf("slot %d", anchor.Slot))
	}
	t.Row("root", v.Root)
	t.Row("checked", "both signatures of every lease and receipt, the chain of each lease's receipts, vouchers, sums")
	t.Row("chain", v.Chain)
	t.Row("good", fmt.Sprintf("%s of %s, owed %s", cli.Count(v.Receipts, "receipt"),
		cli.Count(len(v.Leases), "lease"), g.FormatAmount(v.Owed)))
}
