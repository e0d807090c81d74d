package proofcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/proof"
	rules "github.com/starling-network/starling/verify/audit"
)

// NewAudit makes the command `starling audit`.
func NewAudit(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "What this peer's units have shown to be: run an audit, look at a record, check one",
		Long: `Time is cut into windows (audit_slots of the genesis), and the first block of each draws whether it has an audit (one in audit_one_in).
Then every unit on sale shows half a minute later what it is to a committee that nobody chooses: it multiplies matrices that nobody knew
before and walks through its memory, and the committee looks at the clock. All units begin at one instant, so that no card answers for two,
and nobody knows of an audit before, so that none is rented for it. What came of it is a record, which anyone can check for ever,
offline: what was computed nobody can fake, also no committee.`,
		Example: `  starling audit ls
  starling audit run
  starling audit show 4f0c21aa --save unit.json
  starling audit check unit.json
  starling audit floors`,
		GroupID: cli.GroupPeer,
		Args:    cli.OnlyCommands,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(auditLs(a), auditRun(a), auditShow(a), auditCheck(a), auditFloors(a))
	return c
}

func auditLs(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List how this peer's units did, the newest audit of each first",
		Long: `Lists the last 24 audits of each unit. TOPS is int8 arithmetic in 10¹² operations a second, READS 32-byte reads at random places of
its memory in 10⁶ a second, and MEMORY what they were spread over. No round trip is subtracted from the times, so a unit is at least as fast as it says here. A record is anchored once the
chain has its hash under a root: those of all units in a window at once, for one fee.

A unit says which card it is by a hash of the card's UUID. Where another unit of the network says that it is the same card, a buyer
takes the one that it saw to pass first, and the other for unproven until both passed in one window: then there are two cards. Nobody
loses stake for a UUID, for anybody can copy one.`,
		Example: `  starling audit ls -o json`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			past, err := api.ListAudits.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			return a.Show(past, func(t *cli.Table) { auditTable(t, past) })
		},
	}
}

func auditFloors(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "floors",
		Short: "List the classes that audits tell from others, and what each must show",
		Long: `Lists what a unit of a class must reach: TOPS of int8 arithmetic, 32-byte reads a second at random places of its memory, and the least
memory. SOURCE says whether the figures were measured (on which card, where and when), published by others, or assumed from a data sheet. Hardware of any
other class is proven as its family alone, and sold so.`,
		Example: `  starling audit floors`,
		Args:    cli.ExactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			type line struct {
				Class      market.Class `json:"class"`
				Operations uint64       `json:"operations"`
				Reads      uint64       `json:"reads"`
				VRAMMiB    uint32       `json:"vramMiB,omitempty"`
				Source     string       `json:"source"`
			}
			var all []line
			for _, k := range rules.Floors() {
				all = append(all, line{k.Class, k.Operations, k.Reads, k.VRAMMiB, k.Source})
			}
			return a.Show(all, func(t *cli.Table) {
				t.Head("CLASS", "TOPS", "READS", "MEMORY", "SOURCE")
				for _, l := range all {
					memory := "-"
					if l.VRAMMiB > 0 {
						memory = fmt.Sprintf("%d MiB", l.VRAMMiB)
					}
					r := rules.Rates{Operations: l.Operations, Reads: l.Reads}
					t.Row(l.Class, tops(r), megareads(r), memory, l.Source)
				}
			})
		},
	}
}

func auditTable(t *cli.Table, past []audit.Past) {
	t.Head("UNIT", "CLASS", "WINDOW", "AGE", "TOPS", "READS", "MEMORY", "RECORD", "STANDING", "")
	for _, p := range past {
		if p.Failed != "" {
			t.Row(p.Unit.Short(), p.Class, fmt.Sprint(uint64(p.Window)), cli.Ago(time.Now(), p.At), "", "", "", "",
				p.Standing, "not passed: "+cli.Clip(p.Failed, 160))
			continue
		}
		r, passed := p.Rates, "passed"
		if p.Anchored != "" {
			passed = "passed, anchored"
		}
		t.Row(p.Unit.Short(), p.Class, fmt.Sprint(uint64(p.Window)), cli.Ago(time.Now(), p.At), tops(r), megareads(r),
			mebibytes(r), p.Record.Short(), p.Standing, passed)
	}
	if len(past) == 0 {
		t.Row("none yet")
	}
}

func tops(r rules.Rates) string      { return fmt.Sprintf("%.3f", float64(r.Operations)/1e12) }
func megareads(r rules.Rates) string { return fmt.Sprintf("%.1f M/s", float64(r.Reads)/1e6) }
func mebibytes(r rules.Rates) string { return fmt.Sprintf("%d MiB", r.Memory>>20) }

func auditRun(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Have this peer's idle units show now what they are, and wait",
		Long: `Audits this peer's units that nobody has leased, in the window that is now, if its first block draws an audit: half a minute after the
window's beginning, the same for every unit of the network. A window without an audit, or one whose audit has begun, is an error. A peer
does all this by itself; each window is answered once, and none in which the peer was started: a peer whose journal was put back must
not answer twice.`,
		Example: `  starling audit run`,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			a.Say("waiting for the window's first block, for the instant if it draws an audit, then for the committee")
			past, err := api.RunAudit.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			return a.Show(past, func(t *cli.Table) { auditTable(t, past) })
		},
	}
}

func auditShow(a *cli.App) *cobra.Command {
	var peer, save string
	var o verifyOptions
	c := &cobra.Command{
		Use:   "show RECORD",
		Short: "Show the record of an audit, and who judged",
		Long: `Shows a record by its hash: of this peer's units, where the beginning is enough, or with --peer of another peer's. It is checked as
audit check does, its anchor on chain too. --save writes it into a file that anybody can check: with the genesis of its network, and,
once its peer has anchored it, with the path to the root that is on chain.`,
		Example: `  starling audit show 4f0c21aa
  starling audit show 4f0c21aa9b3e5d71… --peer 7xKX…gAsU --save unit.json`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			client, g, err := a.Known()
			if err != nil {
				return err
			}
			var of sign.Key
			var hash sign.Hash
			if peer != "" {
				if of, err = a.PeerKey(c.Context(), peer); err != nil {
					return err
				}
				if hash, err = sign.ParseHash(args[0]); err != nil {
					return cli.Usagef("%q: %v", cli.Clip(args[0], 70), err)
				}
			} else {
				past, err := api.ListAudits.Call(c.Context(), client, api.None{})
				if err != nil {
					return err
				}
				p, err := cli.FindOne(past, args[0], func(p audit.Past) string { return p.Record.String() })
				if err != nil {
					return cli.WithHint(err, "starling audit ls")
				}
				hash = p.Record
			}
			kept, err := api.GetAudit.Call(c.Context(), client, api.Audited{Peer: of, Hash: hash})
			if err != nil {
				return err
			}
			f := audit.NewFile(g, kept)
			if save != "" {
				if err := cli.SaveJSON(save, f); err != nil {
					return err
				}
				a.Say("wrote the record to %s", save)
			}
			return showRecord(a, c.Context(), f, o)
		},
	}
	o.flags(c)
	c.Flags().StringVar(&peer, "peer", "", "key of the peer whose unit it is (default this one)")
	c.Flags().StringVar(&save, "save", "", "file to write the record to")
	return c
}

func auditCheck(a *cli.App) *cobra.Command {
	var o verifyOptions
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Check the record of an audit, and say what it shows",
		Long: `Checks everything in the file: that the seeds are made of the beacon and of what the committee gave, that the provider
signed its answer before it knew what would be looked at, that every opened entry of its products is right and every walker that
is shown arrived where its walk leads, and that more than two thirds of the committee passed it. The first rule that is broken is
named, and the exit code is 1. Two things rest on the chain and are not checked: that the beacon is the hash of its slot, and
that the committee was drawn from those who had something at stake.

A peer anchors its records on chain, those of a window under one root; a file that was saved after that shows the way from the
record to the root. With --rpc, or when this home directory's configuration names an endpoint and is on the same network, the
chain is asked whether it has that root, and since which slot: nobody can have made the record later.`,
		Example: `  starling audit check unit.json
  starling audit check unit.json --rpc https://rpc.example`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			b, err := cli.ReadFile(args[0], audit.MaxFile)
			if err != nil {
				return &cli.Error{Code: cli.ExitUsage, Err: err}
			}
			f, err := audit.ParseFile(b)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return showRecord(a, c.Context(), f, o)
		},
	}
	o.flags(c)
	return c
}

// recordInfo is a record as it is shown.
type recordInfo struct {
	Hash    sign.Hash    `json:"hash"`
	Network string       `json:"network"`
	Record  rules.Record `json:"record"`
	Rates   rules.Rates  `json:"rates"`
	Anchor  *anchorInfo  `json:"anchor,omitempty"` // absent while it is not anchored
}

// anchorInfo says where a record is anchored.
type anchorInfo struct {
	Transaction chain.TxID  `json:"transaction"`
	Slot        market.Slot `json:"slot"`
	Root        sign.Hash   `json:"root"`
	Index       int         `json:"index"`
	Count       uint64      `json:"count"`
	Chain       string      `json:"chain"` // "checked", or why it was not
}

// showRecord checks a record and shows its content.
func showRecord(a *cli.App, ctx context.Context, f audit.File, o verifyOptions) error {
	began := time.Now()
	r, err := f.Check()
	if rule, broken := errors.AsType[*rules.RuleError](err); broken {
		return fmt.Errorf("it shows nothing: rule %s is broken: %s", rule.Rule, rule.Detail)
	}
	if err != nil {
		return fmt.Errorf("it shows nothing: %w", err)
	}
	took := time.Since(began)
	info := recordInfo{r.Hash(), f.Genesis.Tag(), r, r.Rates(), nil}
	if in, ok := f.Anchored(); ok {
		info.Anchor = &anchorInfo{in.Tx, in.Slot, in.Anchor.Root, in.Index, in.Anchor.Count,
			"checked: it has this root"}
		l, why, err := chainAtHand(a, f.Genesis, o)
		switch {
		case err != nil:
			return err
		case l == nil:
			info.Anchor.Chain = why
		default:
			err := chainAway(proof.CheckRecord(ctx, l, in, info.Hash))
			if _, broken := errors.AsType[*proof.BrokenRule](err); broken {
				return fmt.Errorf("its anchor does not hold: %w", err)
			}
			if err != nil {
				return err
			}
		}
	}
	return a.Show(info, func(t *cli.Table) {
		ans, rates := r.Answer, info.Rates
		t.Row("record", info.Hash.String())
		t.Row("unit", ans.Unit.String(), "of "+ans.Provider.String())
		t.Row("when", fmt.Sprintf("window %d, attempt %d; beacon: the hash of slot %d", ans.Window, ans.Attempt,
			r.Beacon.Slot))
		at := rules.NewInstants(f.Genesis)
		from, to := at.Span(ans.Window, ans.Attempt, "")
		t.Row("instant", fmt.Sprintf("slot %d; attempt %d begins in slots %d to %d", at.Of(ans.Window), ans.Attempt,
			from, to-1), "the same for every unit of the network")
		t.Row("products", ans.Shape.String(), tops(rates)+" TOPS at least")
		t.Row("memory", ans.Walk.String(), megareads(rates)+" at least")
		for _, v := range r.Verdicts {
			t.Row("judged by", v.Member.String(),
				fmt.Sprintf("%s: begun in slot %d, products after %v, walk after %v", v.Outcome, v.Slot,
					micros(v.Product), micros(v.Walk)))
		}
		t.Row("checked", fmt.Sprintf("%d entries, %d walkers, %d signatures in %v", len(r.Opened.Openings),
			len(r.Walked.Ends), len(r.Verdicts)+2, took.Round(100*time.Microsecond)))
		if x := info.Anchor; x == nil {
			t.Row("anchored", "not yet, in what this was made of")
		} else {
			t.Row("anchored", fmt.Sprintf("number %d of %d under root %s", x.Index, x.Count, x.Root),
				fmt.Sprintf("transaction %s, slot %d", x.Transaction, x.Slot))
			t.Row("chain", x.Chain)
		}
		t.Row("not checked", "the beacon and the committee: they rest on the chain of network "+info.Network)
	})
}

func micros(n uint64) time.Duration {
	return (time.Duration(min(n, 1<<50)) * time.Microsecond).Round(100 * time.Microsecond)
}
