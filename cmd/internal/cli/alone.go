package cli

import (
	"context"

	"github.com/starling-network/starling/node/api"
)

// warnAlone warns if the peer is connected to no other, which is why it finds nothing.
func (a *App) warnAlone(ctx context.Context, c *api.Client) {
	n, err := api.GetNode.Call(ctx, c, api.None{})
	if err != nil || n.Peers > 0 {
		return
	}
	a.say("warning: this peer is connected to no other, so it finds no offers")
	a.say("hint: check bootstrap in config.yaml and the peer's log; `starling peer ping ADDRESS` says why a peer cannot be reached")
}
