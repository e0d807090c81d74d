package peercmd

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/p2p"
)

// daemon is a command that runs until it is interrupted: the peer, or the agent of a light client.
type daemon struct {
	level  slog.Level // --log-level
	format string     // --log-format

	home, cache, version string
	log                  *slog.Logger
}

func (d *daemon) flags(c *cobra.Command) {
	c.Flags().TextVar(&d.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	c.Flags().StringVar(&d.format, "log-format", "text", "text or json")
}

// open finds the directories and opens the log. Until ctx ends, it returns unused memory to the system.
func (d *daemon) open(ctx context.Context, a *cli.App, home func() (string, error)) (err error) {
	if d.home, err = home(); err != nil {
		return err
	}
	if d.cache, err = a.Cache(); err != nil {
		return err
	}
	d.version = cli.BuildVersion().Version
	if d.log, err = newLogger(a.Err, d.level, d.format); err != nil {
		return err
	}
	go giveBack(ctx)
	return nil
}

// newLogger returns a handler for this program and for libp2p, which logs only warnings unless the level is debug.
func newLogger(w io.Writer, level slog.Level, format string) (*slog.Logger, error) {
	o := &slog.HandlerOptions{Level: level}
	var h slog.Handler
	switch format {
	case "text":
		h = slog.NewTextHandler(w, o)
	case "json":
		h = slog.NewJSONHandler(w, o)
	default:
		return nil, cli.Usagef("--log-format: %q, want text or json", format)
	}
	p2p.LogTo(h)
	log := slog.New(h)
	slog.SetDefault(log)
	return log, nil
}
