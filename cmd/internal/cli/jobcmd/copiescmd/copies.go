// Package copiescmd has the command that shows the copies of a job's outputs at providers.
package copiescmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// New makes the command `starling job copies`.
func New(a *cli.App) *cobra.Command {
	var export string
	c := cli.Ask(a, &cobra.Command{
		Use:   "copies ID",
		Short: "Show the copies of a job's outputs",
		Long: `Shows the providers that keep a copy of the outputs of a job of run --copies, and the end of its paid
time. Each copy is a volume, which starling volume ls lists with its cost. starling volume extend gives it more time.
A lost copy stays in the list, and is replaced until the time of --copies ends. starling get fetches outputs that this
peer no longer has from these providers.

CHECKED is the time since a provider last sent a random part of its copy, which this peer requests every six hours on
average. It shows that the provider could get this part, not that it has all of them. A copy whose provider sends
other bytes, or nothing for a while, is lost and paid no longer.

A copy is a tar archive of the outputs, encrypted by age. Providers cannot read it. -o json and --export include the key
that decrypts it: keep it secret. Providers send a copy to this peer's key alone. If this computer may be lost, save
the exported file and the peer's key elsewhere.`,
		Example: `  starling job copies jk3v5q2a
  starling job copies jk3v5q2a --export copies.json`,
	}, 1, func(ctx context.Context, p cli.Peer, args []string) (record.ShownCopies, error) {
		s, err := api.JobCopies.Call(ctx, p, api.ByID{ID: args[0]})
		if err == nil && export != "" {
			err = save(s, export)
		}
		return s, err
	}, func(t *cli.Table, _ cli.Peer, s record.ShownCopies) {
		table(t, s, time.Now())
		if s.Reason != "" {
			a.Say("no copies are looked after: %s", s.Reason)
		}
	})
	c.Flags().StringVar(&export, "export", "", "new file for the copies and their key")
	return c
}

// save writes the copies and their key to a new file that only its owner reads.
func save(s record.ShownCopies, path string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("exporting the copies: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}

// table shows the copies, one a line.
func table(t *cli.Table, s record.ShownCopies, now time.Time) {
	t.Head("PROVIDER", "STATE", "PAID UNTIL", "CHECKED", "VOLUME", "REASON")
	for _, c := range s.Copies {
		provider, until, checked := "-", "-", "-"
		if !c.Provider.IsZero() {
			provider = c.Provider.Short()
		}
		if !c.Until.IsZero() {
			until = c.Until.Local().Format(time.DateTime)
		}
		if !c.Checked.IsZero() {
			checked = now.Sub(c.Checked).Round(time.Second).String()
		}
		if c.Failed > 0 && c.State == record.CopyKept {
			checked += fmt.Sprintf(", then failed %d times", c.Failed)
		}
		t.Row(provider, string(c.State), until, checked, cli.Dash(c.Job), cli.Clip(c.Reason, 60))
	}
}
