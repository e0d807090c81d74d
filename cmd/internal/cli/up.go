package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/p2p"
)

func newUp(a *App) *cobra.Command {
	level := slog.LevelInfo
	format := "text"
	c := &cobra.Command{
		Use:     "up",
		Aliases: []string{"serve"},
		Short:   "Run the peer",
		Long: `Runs the peer that lives in the home directory until it is interrupted: it joins the network, sells what config.yaml says,
buys for its user, and answers the other commands on a loopback port. What runs and what is owed survives a restart.`,
		Example: `  starling init --genesis network.json --solana-rpc https://rpc.example
  starling up
  starling up --log-level debug --log-format json 2> peer.log`,
		GroupID: groupPeer,
		Args:    exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := a.Home()
			if err != nil {
				return err
			}
			cache, err := a.Cache()
			if err != nil {
				return err
			}
			log, err := newLogger(a.Err, level, format)
			if err != nil {
				return err
			}
			ctx := c.Context()
			p, err := node.Open(ctx, home, cache, buildVersion().Version, log)
			if err != nil {
				return openError(home, err)
			}
			log.Info("starting", "home", home, "version", buildVersion().Version)
			err = p.Run(ctx)
			if cerr := p.Close(); err == nil {
				err = cerr
			}
			log.Info("stopped")
			return err
		},
	}
	c.Flags().TextVar(&level, "log-level", level, "debug, info, warn or error")
	c.Flags().StringVar(&format, "log-format", format, "text or json")
	return c
}

// newLogger is one handler for this program and for libp2p, whose own chatter is kept to warnings unless debugging.
func newLogger(w io.Writer, level slog.Level, format string) (*slog.Logger, error) {
	o := &slog.HandlerOptions{Level: level}
	var h slog.Handler
	switch format {
	case "text":
		h = slog.NewTextHandler(w, o)
	case "json":
		h = slog.NewJSONHandler(w, o)
	default:
		return nil, Usagef("--log-format: %q, want text or json", format)
	}
	p2p.LogTo(h)
	log := slog.New(h)
	slog.SetDefault(log)
	return log, nil
}

// openError gives what keeps a peer from starting a hint.
func openError(home string, err error) error {
	e := &Error{Code: ExitUsage, Err: fmt.Errorf("starting the peer in %s: %w", home, err)}
	if errors.Is(err, fs.ErrNotExist) {
		e.Hint = "set the peer up with `starling init --genesis FILE`"
	}
	return e
}
