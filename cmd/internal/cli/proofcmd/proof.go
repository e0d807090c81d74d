// Package proofcmd has the commands that show, check, export and submit proofs.
package proofcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify"
)

// NewProof makes the command `starling proof`.
func NewProof(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupMoney, &cobra.Command{
		Use:        "proof",
		SuggestFor: []string{"receipts", "evidence", "audit"},
		Short:      "List, check, export and submit proofs",
		Long: `A proof is a signed statement that can be checked without this peer and without trust. The kinds:

` + kindList() + `
Receipts and probes belong to a job of this peer: name the job. A history belongs to a peer: name it, with --kind
history. The others have a hash: the beginning is enough.

Every peer publishes the leases that it buys and sells, with receipts, and reads other peers' leases of the same units.
Two receipts of one provider for one unit and slot, under two leases, are a double sale. On a network with Starling's
program any peer may submit it: the provider loses its stake. At least half of it burns, the two buyers are refunded as
far as it suffices, and the submitter gets a share of the rest.

Judges of audits keep a fraud proof of every false statement to them: a wrong entry of a provider's products, two
answers to one question, or a committee member that passed such a provider. They publish it, and one of them submits it
by itself: it pays the fees and gets an eighth of the stake; the rest burns.`,
		Example: `  starling proof ls
  starling proof check jk3v5q2a
  starling proof export jk3v5q2a receipts.json
  starling proof show 4f0c21aa
  starling proof check double.json
  starling proof submit double.json`,
	}, proofLs(a), proofShow(a), proofCheck(a), proofExport(a), proofSubmit(a), proofWatch(a), proofAudit(a),
		proofFloors(a))
}

// kindList has a line for each kind.
func kindList() string {
	var b strings.Builder
	for _, k := range proof.Kinds() {
		fmt.Fprintf(&b, "  %-12s %s\n", k, k.Text())
	}
	return b.String()
}

// kindFlag is a kind of proof, or none.
type kindFlag proof.Kind

func (k *kindFlag) String() string { return string(*k) }
func (k *kindFlag) Type() string   { return "kind" }

// Set takes the flag's value.
func (k *kindFlag) Set(text string) error {
	for _, known := range proof.Kinds() {
		if text == string(known) {
			*k = kindFlag(text)
			return nil
		}
	}
	return fmt.Errorf("want one of %v", proof.Kinds())
}

// proofRef are the flags that select a proof, beside its name.
type proofRef struct {
	kind kindFlag
	of   string // key of another peer
}

func (r *proofRef) flags(c *cobra.Command) {
	c.Flags().Var(&r.kind, "kind", "kind of proof: of a job receipts (the default) or probes; history of a peer")
	c.Flags().StringVar(&r.of, "of", "", "key of the proof's holder, for a whole hash (default this peer)")
}

// find requests the proof for a name and its flags. The entry is nil for a proof that is made on request.
func find(a *cli.App, ctx context.Context, name string, r proofRef) (f proof.File, e *proof.Entry, err error) {
	client, g, err := a.Known()
	if err != nil {
		return f, nil, err
	}
	var p proof.Proof
	kind := proof.Kind(r.kind)
	switch {
	case r.of != "":
		var q api.ByHash
		if q.Peer, err = a.PeerKey(ctx, r.of); err != nil {
			return f, nil, err
		}
		if q.Hash, err = sign.ParseHash(name); err != nil {
			return f, nil, cli.Usagef("%q: %v", cli.Clip(name, 70), err)
		}
		p, err = api.GetProof.Call(ctx, client, q)
	case kind == proof.KindHistory:
		var peer string
		if peer, err = a.PeerName(ctx, name); err == nil {
			p, err = api.GetHistory.Call(ctx, client, api.ByPeer{Peer: peer})
		}
	case kind == proof.KindReceipts, kind == proof.KindProbes, kind == "" && !isHex(name):
		if kind == "" {
			kind = proof.KindReceipts
		}
		p, err = api.JobProof.Call(ctx, client, api.OfJob{ID: name, Kind: kind})
	default:
		p, e, err = keptProof(a, ctx, client, name, kind)
	}
	if err != nil {
		return f, nil, err
	}
	f, err = proof.NewFile(g, p)
	return f, e, err
}

func isHex(text string) bool { return strings.Trim(text, "0123456789abcdef") == "" }

// keptProof requests a stored proof of the peer, by the beginning of its hash.
func keptProof(a *cli.App, ctx context.Context, c *api.Client, hash string, k proof.Kind) (p proof.Proof,
	e *proof.Entry, err error) {
	all, err := api.ListProofs.Call(ctx, c, api.ByKind{Kind: k})
	if err != nil {
		return p, nil, err
	}
	found, err := cli.FindOne(all, hash, func(e proof.Entry) string { return e.Hash.String() })
	if err != nil {
		return p, nil, cli.WithHint(err, "starling proof ls")
	}
	p, err = api.GetProof.Call(ctx, c, api.ByHash{Hash: found.Hash})
	return p, &found, err
}

func proofLs(a *cli.App) *cobra.Command {
	var kind kindFlag
	c := &cobra.Command{
		Use:   "ls [JOB]",
		Short: "List the proofs that this peer keeps, or a job's leases",
		Long: `Lists the proofs that this peer keeps, its own findings first, the newest first. With a job it lists the
job's leases, with the receipts of each, its cost, and the reason of its end.`,
		Example: `  starling proof ls
  starling proof ls --kind fraud -o json
  starling proof ls jk3v5q2a`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				if kind != "" {
					return cli.Usagef("--kind is for the list without a job")
				}
				return listLeases(a, c.Context(), args[0])
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			all, err := api.ListProofs.Call(c.Context(), client, api.ByKind{Kind: proof.Kind(kind)})
			if err != nil {
				return err
			}
			return a.Show(all, func(t *cli.Table) { entryTable(t, all) })
		},
	}
	c.Flags().Var(&kind, "kind", "kind of proof")
	return c
}

func entryTable(t *cli.Table, all []proof.Entry) {
	if len(all) == 0 {
		t.Row("none")
		return
	}
	t.Head("HASH", "KIND", "AGE", "FOUND BY", "PROVES", "")
	for _, e := range all {
		by := "others"
		if e.Own {
			by = "this peer"
		}
		age := ""
		if !e.Found.IsZero() {
			age = cli.Ago(time.Now(), e.Found)
		}
		t.Row(e.Hash.String()[:16], e.Kind, age, by, e.Proves, cli.Clip(e.StateText(), 120))
	}
}

// accounts asks the peer for a job and its leases.
func accounts(a *cli.App, ctx context.Context, id string) (g market.Genesis, j record.Job, leases []record.LeaseAccount,
	err error) {
	client, g, err := a.Known()
	if err != nil {
		return g, j, nil, err
	}
	if j, err = api.GetJob.Call(ctx, client, api.ByID{ID: id}); err != nil {
		return g, j, nil, err
	}
	leases, err = api.JobReceipts.Call(ctx, client, api.ByID{ID: j.ID})
	return g, j, leases, err
}

func listLeases(a *cli.App, ctx context.Context, job string) error {
	g, _, leases, err := accounts(a, ctx, job)
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
			t.Row(l.Lease.Short(), l.Rank, l.Epoch, l.Provider.Short(), l.Route, l.State, len(l.Receipts), slots,
				g.FormatAmount(l.Owed), cli.Clip(l.Reason, 60))
		}
		t.Row()
		t.Row(cli.Count(total, "receipt") + ", owed " + g.FormatAmount(sum))
	})
}

// listReceipts lists the receipts of the leases of a job with an id that begins with lease.
func listReceipts(a *cli.App, ctx context.Context, job, lease string) error {
	g, _, leases, err := accounts(a, ctx, job)
	if err != nil {
		return err
	}
	shown := []verify.Receipt{}
	rank := map[market.LeaseID]uint32{}
	for _, l := range leases {
		if strings.HasPrefix(l.Lease.String(), lease) {
			shown = append(shown, l.Receipts...)
			rank[l.Lease] = l.Rank
		}
	}
	if len(rank) == 0 && lease != "" {
		return cli.WithHint(cli.Usagef("--lease: the job has no lease %q", lease), "starling proof ls %s", job)
	}
	return a.Show(shown, func(t *cli.Table) {
		t.Head("LEASE", "RANK", "SEQ", "SLOTS", "CPU", "AMOUNT", "CUMULATIVE", "HASH", "")
		for _, r := range shown {
			final := ""
			if r.Final() {
				final = "final"
			}
			t.Row(r.Lease.Short(), rank[r.Lease], r.Seq, fmt.Sprintf("%d–%d", r.From, r.To),
				fmt.Sprintf("%dms", r.CPUMillis), g.FormatAmount(r.Amount), g.FormatAmount(r.Cumulative),
				r.Hash().Short(), final)
		}
	})
}

func proofExport(a *cli.App) *cobra.Command {
	var ref proofRef
	c := &cobra.Command{
		Use:   "export PROOF FILE",
		Short: "Write a proof into a file for independent checks",
		Long: `Writes a proof, with the genesis of its network, as a JSON file. PROOF is the beginning of a hash (proof
ls), or a job. FILE may be - for standard output.`,
		Example: `  starling proof export jk3v5q2a receipts.json
  starling proof export jk3v5q2a probes.json --kind probes
  starling proof export 4f0c21aa9b3e5d71 double.json
  starling proof export 7xKX…gAsU history.json --kind history`,
		Args: cli.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			f, _, err := find(a, c.Context(), args[0], ref)
			if err != nil {
				return err
			}
			if file, err := a.Export(args[1], f); err != nil || !file {
				return err
			}
			x, err := f.Open()
			if err != nil {
				return err
			}
			a.Say("wrote the proof to %s: %s", args[1], x.Summary())
			return unfinished(a, c.Context(), x)
		},
	}
	ref.flags(c)
	return c
}

// unfinished warns that receipts of a job are not complete.
func unfinished(a *cli.App, ctx context.Context, x proof.Content) error {
	r, ok := x.(proof.Receipts)
	if !ok {
		return nil
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	j, err := api.GetJob.Call(ctx, client, api.ByID{ID: r.Job})
	if err == nil && !j.State.Ended() {
		a.Say("job %s is %s: more receipts and its transactions will follow", j.ID, j.State)
	}
	return err
}

// readProof reads a proof file. It reports false if there is no such file and the name may be an id.
func readProof(name string) (f proof.File, found bool, err error) {
	b, err := cli.ReadFile(name, proof.MaxFile)
	if err != nil {
		if !strings.ContainsAny(name, `./\`) {
			return f, false, nil
		}
		return f, true, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	if f, err = proof.ParseFile(b); err != nil {
		return f, true, fmt.Errorf("%s: %w", name, err)
	}
	return f, true, nil
}

// shownProof is a checked proof as JSON, with the state of the stake if the peer keeps the proof.
type shownProof struct {
	proof.Finding
	State   proof.State    `json:"state,omitempty"`
	Why     string         `json:"why,omitempty"`
	Outcome *proof.Outcome `json:"outcome,omitempty"`
}
