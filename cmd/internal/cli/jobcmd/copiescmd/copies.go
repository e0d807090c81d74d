// Package copiescmd has the command that shows, extends and exports the copies of a job's outputs at providers, and
// restores the outputs from exported ones.
package copiescmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

const long = `Shows the providers that keep a copy of the outputs of a job of run --copies, and the end of its paid
time. Each copy is a volume, which starling volume ls lists with its cost. A lost copy stays in the list, and is
replaced until the time of --copies ends. starling get fetches outputs that this peer no longer has from these
providers.

CHECKED is the time since a provider last sent a random part of its copy, which this peer requests every six hours on
average. It shows that the provider could get this part, not that it has all of them. A copy whose provider sends
other bytes, or nothing for a while, is lost and paid no longer.

--extend adds TIME, at most 720h, to the time of all copies. Each volume is extended at its price, if its provider
agrees. Another one replaces it otherwise, at least an hour before it ends, for at most the price of --copies. A volume
lasts at most 720h in all.

A copy is a tar archive of the outputs, encrypted by age. Providers cannot read it. -o json and --export include the key
that decrypts it: keep it secret.

If this computer may be lost, save the exported file and the peer's identity.json elsewhere: providers send a copy to
this peer's key alone, and no other peer can fetch it. On a new computer, put identity.json into an empty home
directory, run starling init and starling up, and then this command with --import and --get. It writes the outputs to
DIR as starling get does. The copies are there only while they are paid: if the peer is away for longer than a payment
interval, a volume ends, unless the job was submitted with -d and its guardians pay meanwhile. --import restores no
job: the copies are not extended, checked or replaced by the new peer. Export again after copies were replaced.`

// flags are the values of the command's flags.
type flags struct {
	export, extend string
	from, dir      string // of --import and --get
}

// New makes the command `starling job copies`.
func New(a *cli.App, download Download) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "copies ID",
		Short: "Show, extend or export copies of a job's outputs",
		Long:  long,
		Example: `  starling job copies jk3v5q2a
  starling job copies jk3v5q2a --extend 7d
  starling job copies jk3v5q2a --export copies.json
  starling job copies jk3v5q2a --import copies.json --get results`,
		Args: cli.ExactArgs(1),
	}
	c.Flags().StringVar(&f.export, "export", "", "new file for the copies and their key")
	c.Flags().StringVar(&f.extend, "extend", "", "time to add, such as 12h or 7d")
	c.Flags().StringVar(&f.from, "import", "", "exported file of this job, of a lost home directory")
	c.Flags().StringVar(&f.dir, "get", "", "with --import: new directory for the outputs")
	c.RunE = func(c *cobra.Command, args []string) error {
		by, err := f.check()
		if err != nil {
			return err
		}
		client, g, err := a.Known()
		if err != nil {
			return err
		}
		switch p := (cli.Peer{Client: client, Genesis: g}); {
		case f.from != "":
			return restore(a, c.Context(), p, args[0], f, download)
		case by > 0:
			return extend(a, c.Context(), p, args[0], by)
		default:
			return show(a, c.Context(), p, args[0], f.export)
		}
	}
	return c
}

// check returns the time of --extend, or an error for flags that exclude one another.
func (f flags) check() (by time.Duration, err error) {
	n := 0
	for _, text := range []string{f.export, f.extend, f.from} {
		if text != "" {
			n++
		}
	}
	switch {
	case n > 1:
		return 0, cli.Usagef("--export, --extend and --import exclude one another")
	case (f.from == "") != (f.dir == ""):
		return 0, cli.Usagef("--import and --get need each other")
	case f.extend == "":
		return 0, nil
	}
	if by, err = cli.ParseAge(f.extend); err != nil || by < job.MinTime {
		return 0, cli.WithHint(cli.Usagef("--extend: %q is not a duration", f.extend), "write it as 45m, 12h or 7d")
	}
	return by, nil
}

// show shows the copies of a job, and writes them to a new file unless its name is "".
func show(a *cli.App, ctx context.Context, p cli.Peer, id, export string) error {
	s, err := api.JobCopies.Call(ctx, p.Client, api.ByID{ID: id})
	if err == nil && export != "" {
		err = save(s, export)
	}
	if err != nil {
		return err
	}
	if s.Reason != "" {
		a.Say("no copies are looked after: %s", s.Reason)
	}
	return a.Show(s, func(t *cli.Table) { table(t, s, time.Now()) })
}

// extend gives the copies of a job more time, and shows each provider's answer.
func extend(a *cli.App, ctx context.Context, p cli.Peer, id string, by time.Duration) error {
	req := api.CopiesTime{ID: id, Body: api.CopiesTimeRequest{By: job.Span(by)}}
	x, err := api.ExtendCopies.Call(ctx, p.Client, req)
	if err != nil {
		return fmt.Errorf("extending the copies of job %s: %w", id, err)
	}
	if text := short(x); text != "" {
		a.Say("%s", text)
	}
	return a.Show(x, func(t *cli.Table) { extended(t, p.Genesis, x) })
}

// short is a sentence about the copies that end before the new time, or "".
func short(x record.ExtendedCopies) string {
	n := 0
	for _, c := range x.Copies {
		if c.State == record.NotExtended || c.State == record.Extended && c.Until.Before(x.Until.Add(-time.Minute)) {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d copies are not paid until the new time: others will replace them", n, len(x.Copies))
}

// extended shows the result of an extension, with a line for each copy.
func extended(t *cli.Table, g market.Genesis, x record.ExtendedCopies) {
	var sum market.Amount
	for _, c := range x.Copies {
		sum = sum.Plus(c.Extra)
	}
	t.Row("job", x.Job)
	t.Row("copies until", at(x.Until))
	t.Row("costs more, at most", g.FormatAmount(sum))
	t.Row()
	t.Row("PROVIDER", "STATE", "PAID UNTIL", "COSTS MORE, AT MOST", "VOLUME", "REASON")
	for _, c := range x.Copies {
		extra := "-"
		if c.Extra > 0 {
			extra = g.FormatAmount(c.Extra)
		}
		t.Row(provider(c.Provider), string(c.State), at(c.Until), extra, cli.Dash(c.Job), cli.Clip(c.Reason, 80))
	}
}

// at is a time in a table.
func at(when time.Time) string {
	if when.IsZero() {
		return "-"
	}
	return when.Local().Format(time.DateTime)
}

// provider is a provider in a table.
func provider(k sign.Key) string {
	if k.IsZero() {
		return "-"
	}
	return k.Short()
}

// save writes the copies and their key to a new file that only its owner reads.
func save(s record.ShownCopies, path string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := cli.Save(bytes.NewReader(append(text, '\n')), path, 0o600); err != nil {
		return fmt.Errorf("exporting the copies: %w", err)
	}
	return nil
}

// table shows the copies, one a line.
func table(t *cli.Table, s record.ShownCopies, now time.Time) {
	t.Head("PROVIDER", "STATE", "PAID UNTIL", "CHECKED", "VOLUME", "REASON")
	for _, c := range s.Copies {
		checked := "-"
		if !c.Checked.IsZero() {
			checked = now.Sub(c.Checked).Round(time.Second).String()
		}
		if c.Failed > 0 && c.State == record.CopyKept {
			checked += fmt.Sprintf(", then failed %d times", c.Failed)
		}
		t.Row(provider(c.Provider), string(c.State), at(c.Until), checked, cli.Dash(c.Job), cli.Clip(c.Reason, 60))
	}
}
