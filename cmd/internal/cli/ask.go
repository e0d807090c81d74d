package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
)

// Peer is the peer or light client that a command asks, and its network.
type Peer struct {
	*api.Client
	Genesis market.Genesis
}

// Ask makes c, a command with this number of arguments, ask the running peer for one thing and show it.
func Ask[T any](a *App, c *cobra.Command, args int, call func(context.Context, Peer, []string) (T, error),
	table func(*Table, Peer, T)) *cobra.Command {
	c.Args = ExactArgs(args)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, g, err := a.Known()
		if err != nil {
			return err
		}
		p := Peer{client, g}
		v, err := call(c.Context(), p, args)
		if err != nil {
			return err
		}
		return a.Show(v, func(t *Table) { table(t, p, v) })
	}
	return c
}

// Get calls a route without parameters.
func Get[T any](r route.Route[api.None, T]) func(context.Context, Peer, []string) (T, error) {
	return func(ctx context.Context, p Peer, _ []string) (T, error) { return r.Call(ctx, p.Client, api.None{}) }
}
