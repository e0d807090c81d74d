//go:build linux

package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/scenarios"
)

// command returns a starling command for a peer, with the secrets in its environment.
func (w *world) command(ctx context.Context, p *testnet.Peer, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.Binary, append([]string{"--home", p.Home}, args...)...)
	cmd.Dir = w.Dir
	cmd.Env = append(os.Environ(), "TOKEN="+tokenSecret, "REGISTRY_PASSWORD="+registryPassword,
		"WRONG_PASSWORD="+badPassword)
	return cmd
}

// starling runs a command of the buyer.
func (w *world) starling(ctx context.Context, args ...string) (scenarios.Said, error) {
	return w.fed(ctx, "", args...)
}

// fed runs a command of the buyer with standard input.
func (w *world) fed(ctx context.Context, input string, args ...string) (scenarios.Said, error) {
	return run(w.command(ctx, w.buyer(), args...), input)
}

func run(cmd *exec.Cmd, input string) (scenarios.Said, error) {
	cmd.Stdin = strings.NewReader(input)
	return scenarios.Command{Cmd: cmd}.Run()
}

// done runs a command that must succeed, and returns its output.
func (w *world) done(ctx context.Context, args ...string) (string, error) {
	s, err := w.starling(ctx, args...)
	if err == nil && s.Code != 0 {
		err = fmt.Errorf("starling %s: %v", strings.Join(args, " "), s)
	}
	return s.Out, err
}

func (w *world) buyer() *testnet.Peer { return w.net.Buyers()[0] }

func (w *world) client() (*api.Client, error) { return w.buyer().Client() }

// job returns the buyer's record of a job.
func (w *world) job(ctx context.Context, id string) (record.Job, error) {
	c, err := w.client()
	if err != nil {
		return record.Job{}, err
	}
	return api.GetJob.Call(ctx, c, api.ByID{ID: id})
}

// provider returns the provider of rank 0 of a job.
func (w *world) provider(ctx context.Context, id string) (int, error) {
	j, err := w.job(ctx, id)
	if err != nil {
		return 0, err
	}
	for i, p := range w.net.Providers() {
		if p.Key == j.Ranks[0].Provider {
			return i, nil
		}
	}
	return 0, fmt.Errorf("job %s has no provider: %s", id, j.Summary())
}

// follow starts a command that runs until it ends or End is called.
func (w *world) follow(args ...string) (*scenarios.Collected, error) {
	return scenarios.Follow(scenarios.Command{Cmd: w.command(context.Background(), w.buyer(), args...)})
}
