package proofcmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/evidence"
	"github.com/starling-network/starling/node/runtime/wasm"
)

// proofs are all that a peer keeps.
type proofs struct {
	kept     []evidence.Kept
	dissents []evidence.Dissent
	lies     []evidence.KeptLie
}

// allProofs asks the peer for them.
func allProofs(ctx context.Context, c *api.Client) (p proofs, err error) {
	var errs [3]error
	p.kept, errs[0] = api.ListEvidence.Call(ctx, c, api.None{})
	p.dissents, errs[1] = api.ListDissents.Call(ctx, c, api.None{})
	p.lies, errs[2] = api.ListLies.Call(ctx, c, api.None{})
	for _, e := range errs {
		if e != nil {
			return p, e
		}
	}
	return p, nil
}

// listed are the proofs of all kinds, for JSON.
func (p proofs) listed() []any {
	out := []any{}
	for _, k := range p.kept {
		out = append(out, struct {
			Kind string `json:"kind"`
			evidence.Kept
		}{"double-sale", k})
	}
	for _, d := range p.dissents {
		out = append(out, struct {
			Kind string `json:"kind"`
			evidence.Dissent
		}{"dissent", d})
	}
	for _, l := range p.lies {
		out = append(out, struct {
			Kind string `json:"kind"`
			evidence.KeptLie
		}{"lie", l})
	}
	return out
}

// tables has one table for each kind of which there are some.
func (p proofs) tables(t *cli.Table) {
	if len(p.dissents) > 0 {
		dissentTable(t, p.dissents)
	}
	if len(p.lies) > 0 {
		lieTable(t, p.lies)
	}
	if len(p.kept) > 0 {
		t.Head("ID", "AGE", "PROVIDER", "UNIT", "SLOTS", "BUYERS", "")
		for _, k := range p.kept {
			mine := ""
			if k.Mine {
				mine = "you are one of them"
			}
			t.Row(k.ID, cli.Ago(time.Now(), k.Found), k.Provider.Short(), k.Unit.Short(),
				fmt.Sprintf("%d–%d", k.From, k.To),
				k.Buyers[0].Short()+" and "+k.Buyers[1].Short(), mine)
		}
	}
	if len(p.kept)+len(p.dissents)+len(p.lies) == 0 {
		t.Row("none")
	}
}

func dissentTable(t *cli.Table, dissents []evidence.Dissent) {
	t.Head("ID", "AGE", "WORK", "PROVIDERS", "A MAJORITY DIFFERS FROM")
	for _, d := range dissents {
		var all, wrong []string
		for _, p := range d.Providers {
			all = append(all, p.Short())
		}
		for _, p := range d.Wrong {
			wrong = append(wrong, p.Short())
		}
		if len(wrong) == 0 {
			wrong = []string{"there is none; evidence check --program runs it again"}
		}
		t.Row(d.ID, cli.Ago(time.Now(), d.Found), d.Work.Short(), strings.Join(all, ", "), strings.Join(wrong, ", "))
	}
	t.Row()
}

// exported is a proof that can be written into a file.
type exported struct {
	id, against string
	proof       evidence.Proof
}

func (p proofs) exportable(g market.Genesis) []exported {
	var out []exported
	for _, k := range p.kept {
		out = append(out, exported{k.ID, "against " + k.Provider.String(), evidence.NewProof(g, k.Conflict)})
	}
	for _, l := range p.lies {
		out = append(out, exported{l.ID, "that " + l.Liar.String() + " lied in an audit",
			evidence.NewLieProof(g, l.Proof)})
	}
	for _, d := range p.dissents {
		out = append(out, exported{d.ID, fmt.Sprintf("that %d providers signed different results", len(d.Providers)),
			evidence.NewDissentProof(g, d.Proof)})
	}
	return out
}

// rerunOptions are the files with which a work is run again.
type rerunOptions struct {
	program string
	inputs  []string
}

func (o *rerunOptions) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.program, "program", "", "the program of the work: run it again")
	c.Flags().StringArrayVar(&o.inputs, "input", nil,
		"an input of the work, PATH=FILE with the path that the program knows, a directory's too; may be repeated")
}

func (o rerunOptions) given() bool { return o.program != "" || len(o.inputs) > 0 }

func (o rerunOptions) files() (evidence.Files, error) {
	f := evidence.Files{Program: o.program, Inputs: map[string]string{}}
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

// showDissent checks a proof that results differ, and with the files runs the work again.
func showDissent(a *cli.App, ctx context.Context, p evidence.Proof, o rerunOptions) error {
	f, err := found(p.CheckDissent())
	if err != nil {
		return err
	}
	if o.given() {
		files, err := o.files()
		if err != nil {
			return err
		}
		if f.Again, err = rerun(ctx, f, files); err != nil {
			return err
		}
	}
	return a.Show(f, func(t *cli.Table) { dissentFound(t, f, whose(a, f.GenesisHash)) })
}

// rerun runs the work of a proof in the embedded runtime, in a directory that is removed.
func rerun(ctx context.Context, f evidence.DissentFinding, files evidence.Files) (*evidence.Again, error) {
	dir, err := os.MkdirTemp("", "starling-evidence-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	rt, err := wasm.New(wasm.Config{CacheDir: filepath.Join(dir, "cache")})
	if err != nil {
		return nil, err
	}
	defer rt.Close()
	r, err := evidence.Rerun(ctx, rt, f.Work, files, dir)
	if err != nil {
		return nil, err
	}
	return &evidence.Again{Result: r, Wrong: f.Dissent.Against(r)}, nil
}

func dissentFound(t *cli.Table, f evidence.DissentFinding, network string) {
	t.Row("proven", fmt.Sprintf("%d providers signed different results of one work", len(f.Signed)))
	t.Row("work", f.WorkHash)
	t.Row("", "program "+f.Work.Program.String())
	for _, in := range f.Work.Inputs {
		t.Row("", "input "+in.Path+" "+in.Content.String())
	}
	for _, s := range f.Signed {
		t.Row("signed by", fmt.Sprintf("%s under lease %s, until slot %d: exit code %d", s.Provider, s.Lease.Short(),
			s.Slot, s.Result.Exit))
		for i, h := range s.Result.Trees {
			t.Row("", f.Work.Outputs[i]+" "+h.String())
		}
	}
	names := func(wrong []int) string {
		var out []string
		for _, w := range wrong {
			out = append(out, f.Signed[w].Provider.String())
		}
		return strings.Join(out, ", ")
	}
	switch {
	case len(f.Wrong) > 0:
		t.Row("majority", "differs from "+names(f.Wrong))
	default:
		t.Row("majority", "none")
	}
	t.Row("network", f.Network, "genesis "+f.GenesisHash.String(), network)
	if f.Again == nil {
		t.Row("not run again", "whose result is false: --program and --input run the work here")
		return
	}
	t.Row("run again", fmt.Sprintf("exit code %d", f.Again.Result.Exit))
	for i, h := range f.Again.Result.Trees {
		t.Row("", f.Work.Outputs[i]+" "+h.String())
	}
	if len(f.Again.Wrong) == 0 {
		t.Row("false", "none of them")
		return
	}
	t.Row("false", "what was signed by "+names(f.Again.Wrong))
}
