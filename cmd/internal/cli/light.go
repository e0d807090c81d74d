package cli

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
)

const (
	// agentLog is the log file of a light client's agent.
	agentLog = "client.log"
	// agentStart bounds the start of an agent: at the first use it has to find its network.
	agentStart = 40 * time.Second
	// agentJoin bounds the time until a started agent reaches an entry peer and the chain.
	agentJoin = 5 * time.Second
	// AgentIdle is the time after which an unused agent ends.
	AgentIdle = 5 * time.Minute
)

// Light reports whether the command uses a light client instead of a peer, and returns its entry peers.
func (a *App) Light() (peers []string, ok bool) {
	text := a.peer
	if !a.peerSet {
		text = a.Getenv("STARLING_PEER")
	}
	for p := range strings.SplitSeq(text, ",") {
		if p = strings.TrimSpace(p); p != "" {
			peers = append(peers, p)
		}
	}
	return peers, len(peers) > 0
}

// agent returns the API of the light client's agent. It starts the agent if none runs.
func (a *App) agent(peers []string) (*api.Client, error) {
	ctx := a.ctx
	home, err := a.Home()
	if err != nil {
		return nil, err
	}
	if _, err := config.ParsePeers(peers); err != nil {
		return nil, &Error{Code: ExitUsage, Err: err,
			Hint: "starling peer status, on the entry peer, shows its addresses"}
	}
	if err := config.GivePeers(home, peers); err != nil {
		return nil, err
	}
	if c := Answering(ctx, home); c != nil {
		return c, a.dialsAs(c)
	}
	first := !exists(filepath.Join(home, config.FileIdentity))
	pinned := exists(filepath.Join(home, config.FileGenesis))
	c, err := a.startAgent(ctx, home, peers)
	if err != nil {
		return nil, err
	}
	a.warn(joined(ctx, c), false)
	g, err := config.LoadGenesis(home)
	if err == nil && !pinned {
		a.Say("network %s is pinned for this client, genesis %s", g.Tag(), g.Hash())
	}
	if w, err := ReadAddresses(home); err == nil && first {
		a.Say("made a key for this client in %s", home)
		if !g.Free {
			a.Say("fund it before the first job: %s takes tokens for jobs and SOL for fees", w.Owner)
		}
	}
	return c, nil
}

// warn shows the problems of a light client. With trust it shows only missing witnesses of connected entry peers;
// without, all other problems.
func (a *App) warn(n api.NodeInfo, trust bool) {
	for _, p := range n.Problems {
		if (p.Service == api.EntriesService && len(n.Entries) > 0) == trust {
			a.Say("warning: %s", p)
		}
	}
}

// WarnTrust warns the user of a light client if its entry peers have no witness: an entry could hide offers. Commands
// that buy or compare offers call it.
func (a *App) WarnTrust(ctx context.Context, c *api.Client) {
	if _, light := a.Light(); !light {
		return
	}
	if n, err := api.GetNode.Call(ctx, c, api.None{}); err == nil {
		a.warn(n, true)
	}
}

// joined waits until an agent has reached an entry peer and the chain, or for agentJoin, and returns its state.
func joined(ctx context.Context, c *api.Client) (n api.NodeInfo) {
	ctx, cancel := context.WithTimeout(ctx, agentJoin)
	defer cancel()
	for {
		if now, err := api.GetNode.Call(ctx, c, api.None{}); err == nil {
			n = now
		}
		if len(n.Entries) > 0 && n.ChainUp {
			return n
		}
		select {
		case <-ctx.Done():
			return n
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// dialsAs refuses --direct if the running light client was started without it: the flag would have no effect.
func (a *App) dialsAs(c *api.Client) error {
	if !a.Direct {
		return nil
	}
	n, err := api.GetNode.Call(a.ctx, c, api.None{})
	if err == nil && !n.Direct {
		err = &Error{
			Code: ExitUsage, Err: errors.New("--direct: the light client runs already, without it"),
			Hint: "stop it with `starling client stop`; the next command with --direct starts it so, and its " +
				"jobs resume",
		}
	}
	return err
}

// Introduced ensures that the home directory of a light client has a network: the first command with --peer sets it up.
func (a *App) Introduced() error {
	peers, light := a.Light()
	if !light {
		return nil
	}
	home, err := a.Home()
	if err != nil || exists(filepath.Join(home, config.FileGenesis)) {
		return err
	}
	_, err = a.agent(peers)
	return err
}

// startAgent runs this program's `client serve` in the background and waits until it answers.
func (a *App) startAgent(ctx context.Context, home string, peers []string) (*api.Client, error) {
	args := []string{"client", "serve", "--home", home, "--peer", strings.Join(peers, ",")}
	if a.Pin != "" {
		args = append(args, "--genesis", a.Pin)
	}
	if a.PSK != "" {
		args = append(args, "--psk", a.PSK)
	}
	if a.Direct {
		args = append(args, "--direct")
	}
	return Background{Name: "light client", Home: home, Log: agentLog, Args: args, Patience: agentStart}.Start(ctx)
}
