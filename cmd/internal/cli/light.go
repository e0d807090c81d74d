package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
)

const (
	// agentLog is the log file of a light client's agent.
	agentLog = "client.log"
	// agentStart is how long an agent may take until it answers: at the first use it has to find its network.
	agentStart = 40 * time.Second
	// agentJoin is how long an agent that answers may take until it reaches an entry peer and the chain.
	agentJoin = 5 * time.Second
	// AgentIdle is how long an agent stays that nobody needs.
	AgentIdle = 5 * time.Minute
	// maxAgentLog is when the log of earlier agents is put aside.
	maxAgentLog = 10 << 20
)

// Light reports whether the command is for a light client instead of a peer of one's own, and by which entry peers.
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

// agent is the API of the light client's agent, which is started when none runs.
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

// warn shows the problems of a light client: with trust, that the entry peers that are connected have no witness, and
// else all others.
func (a *App) warn(n api.NodeInfo, trust bool) {
	for _, p := range n.Problems {
		if (p.Service == api.EntriesService && len(n.Entries) > 0) == trust {
			a.Say("warning: %s", p)
		}
	}
}

// WarnTrust warns the user of a light client whose entry peers have no witness. Commands that buy or compare offers
// call it: an entry could hide some.
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

// dialsAs refuses --direct where the light client that runs does otherwise: it would mean nothing.
func (a *App) dialsAs(c *api.Client) error {
	if !a.Direct {
		return nil
	}
	n, err := api.GetNode.Call(a.ctx, c, api.None{})
	if err == nil && !n.Direct {
		err = &Error{
			Code: ExitUsage, Err: errors.New("--direct: the light client runs already, without it"),
			Hint: "stop it with `starling client stop`; the next command with --direct starts it so, and its " +
				"jobs go on",
		}
	}
	return err
}

// Introduced makes sure that a light client knows its network: the first command with --peer starts it.
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

// Answering is the API of a peer or agent on home that answers now, or nil.
func Answering(ctx context.Context, home string) *api.Client {
	c, err := api.Dial(home, config.FileAPI)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := api.GetNode.Call(ctx, c, api.None{}); err != nil {
		return nil
	}
	return c
}

// startAgent runs this program's `client serve` in the background and waits until it answers.
func (a *App) startAgent(ctx context.Context, home string, peers []string) (*api.Client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	path := filepath.Join(home, agentLog)
	if st, err := os.Stat(path); err == nil && st.Size() > maxAgentLog {
		_ = os.Rename(path, path+".old")
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting the light client: %w", err)
	}
	defer log.Close()
	begin, err := log.Seek(0, 2)
	if err != nil {
		return nil, fmt.Errorf("starting the light client: %w", err)
	}
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
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = log, log
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the light client: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, agentStart)
	defer cancel()
	for {
		if c := Answering(ctx, home); c != nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return nil, &Error{Code: ExitUnreachable, Err: fmt.Errorf("the light client does not answer: %w",
				ctx.Err()), Hint: "its log is " + path}
		case err := <-ended:
			if c := Answering(ctx, home); c != nil { // another command started one first
				return c, nil
			}
			return nil, agentError(err, path, begin)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// agentError is the last error of an agent, with its exit code.
func agentError(err error, path string, begin int64) error {
	e := &Error{Code: ExitFailed, Err: errors.New("the light client ended"), Hint: "its log is " + path}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		e.Code = ExitCode(exit.ExitCode())
	}
	b, err := ReadFile(path, 2*maxAgentLog)
	if err != nil || int64(len(b)) < begin {
		return e
	}
	for line := range bytes.Lines(b[begin:]) {
		text := strings.TrimSpace(string(line))
		if said, ok := strings.CutPrefix(text, "starling: "); ok {
			e.Err = errors.New(said)
		}
		if hint, ok := strings.CutPrefix(text, "hint: "); ok {
			e.Hint = hint
		}
	}
	return e
}
