//go:build linux

package scenario

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/scenarios"
)

// stops checks that a stopped job leaves no container and is paid for.
func (w *world) stops(ctx context.Context) (string, error) {
	r, err := w.begin(ctx, "stopped")
	if err != nil {
		return "", err
	}
	if _, err := w.done(ctx, "stop", r.id); err != nil {
		return "", err
	}
	s, err := w.starling(ctx, "wait", r.id)
	if err != nil || s.Code != 1 || !strings.Contains(s.Err, "stopped") {
		return "", fmt.Errorf("waiting for a stopped job: %v: %w", s, err)
	}
	if _, err := r.log.Wait(ctx); err != nil {
		return "", err
	}
	j, err := w.paid(ctx, r.id)
	if err != nil {
		return "", err
	}
	if _, err := scenarios.Until(ctx, func() (bool, string, error) {
		ids, err := w.containers(ctx)
		return len(ids) == 0, short(ids), err
	}); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, paid %s for the time it ran", j.State, w.net.Genesis.FormatAmount(j.Paid)), nil
}

// engineFaults is the part of the scenario with ended engines.
type engineFaults struct{ *world }

// moves waits until a job with a lost engine has ended on another provider.
func (w engineFaults) moves(ctx context.Context, r running, from int) (string, error) {
	if err := r.log.WaitFor(ctx, "serving", 2); err != nil {
		return "", err
	}
	at, err := w.provider(ctx, r.id)
	if err != nil {
		return "", err
	}
	j, err := w.job(ctx, r.id)
	if err != nil {
		return "", err
	}
	// on a busy machine it may be lost once more, and be placed where the engine has restarted
	if n := j.Ranks[0].Restarts; n < 1 || n == 1 && at == from || j.Ranks[0].Retries != 0 {
		return "", fmt.Errorf("the rank is at provider %d, was at %d: %+v", at, from, j.Ranks[0])
	}
	c, err := w.client()
	if err != nil {
		return "", err
	}
	steps, err := api.JobSteps.Call(ctx, c, api.ByID{ID: r.id})
	if err != nil {
		return "", err
	}
	why := ""
	for _, s := range steps {
		if s.Kind == record.StepLost {
			why = s.Detail
		}
	}
	if why == "" {
		return "", fmt.Errorf("the trace has no reason for the lost rank")
	}
	w.work = r
	if _, err := w.forwards(ctx); err != nil {
		return "", err
	}
	if _, err := w.finishes(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%q; it moved to %s and succeeded", why, w.net.Providers()[at].Name), nil
}

// again restarts an engine after a step, regardless of the step's outcome.
func (w engineFaults) again(ctx context.Context, at int, err *error) {
	if !w.engines[at].Running() {
		*err = errors.Join(*err, w.engines[at].Restart(context.WithoutCancel(ctx)))
	}
}

// engineKilled kills an engine. The program runs on without it and is lost when a new engine cleans up.
func (w engineFaults) engineKilled(ctx context.Context) (got string, err error) {
	r, err := w.begin(ctx, "killed")
	if err != nil {
		return "", err
	}
	at, err := w.provider(ctx, r.id)
	if err != nil {
		return "", err
	}
	defer w.again(ctx, at, &err)
	w.engines[at].Signal(syscall.SIGKILL)
	if s, err := w.starling(ctx, "exec", r.id, "--", "/box", "exit", "3"); err != nil || s.Code != 3 {
		return "", fmt.Errorf("exec without the engine: %v: %w", s, err)
	}
	s, err := w.starling(ctx, "job", "pause", r.id)
	if err != nil || s.Code == 0 || !strings.Contains(s.Err, "engine") {
		return "", fmt.Errorf("pausing without the engine: %v: %w", s, err)
	}
	if err := w.engines[at].Restart(ctx); err != nil {
		return "", err
	}
	// on a busy machine an engine may leave the program running, and end it only when the engine itself is stopped
	cleared, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if r.log.WaitFor(cleared, "serving", 2) != nil {
		w.engines[at].Signal(syscall.SIGTERM)
	}
	got, err = w.moves(ctx, r, at)
	return "exec works without it, pause reports why it does not; " + got, err
}

// engineStopped stops an engine, which first asks its programs to end. That must not count as the programs' own end.
func (w engineFaults) engineStopped(ctx context.Context) (got string, err error) {
	r, err := w.begin(ctx, "engine-stopped")
	if err != nil {
		return "", err
	}
	at, err := w.provider(ctx, r.id)
	if err != nil {
		return "", err
	}
	defer w.again(ctx, at, &err)
	w.engines[at].Signal(syscall.SIGTERM)
	return w.moves(ctx, r, at)
}

// simulated checks that every output about a simulated GPU marks it as simulated, the program's own environment too.
func (w *world) simulated(ctx context.Context) (string, error) {
	order := []string{"--gpus", "h100:2", "--max-price", "1", "--budget", "0.1", "--timeout", "1m", w.image}
	id, err := w.done(ctx, append([]string{"run", "-d"}, append(order, "--", "exit", "0")...)...)
	if err != nil {
		return "", err
	}
	id = strings.TrimSpace(id)
	if _, err := w.done(ctx, "wait", id); err != nil {
		return "", err
	}
	if _, err := w.paid(ctx, id); err != nil {
		return "", err
	}
	env, err := w.done(ctx, append([]string{"run", "--wait", "paid"}, append(order, "--", "env")...)...)
	if err != nil {
		return "", err
	}
	seller, err := run(w.command(ctx, w.net.Providers()[0], "provider", "gpus", "--mock", mock), "")
	if err != nil {
		return "", err
	}
	views := map[string]string{"the program's environment": env, "gpus": seller.Out}
	for what, args := range map[string][]string{
		"offers": {"offers", "--class", "gpu"}, "quote": append([]string{"quote"}, order...), "ps": {"ps", "-a"},
		"status": {"status", id}, "why": {"why", id},
	} {
		if views[what], err = w.done(ctx, args...); err != nil {
			return "", err
		}
	}
	for what, text := range views {
		if !strings.Contains(text, "(simulated)") {
			return "", fmt.Errorf("%s does not mark them as simulated: %q", what, text)
		}
	}
	return fmt.Sprintf("%d places, %s", len(views), strings.TrimSpace(env)), nil
}

// leavesNoTrace searches all written files for secrets: homes, journals, logs, and all files of the engines.
func (w *world) leavesNoTrace(context.Context) (string, error) {
	auth := base64.StdEncoding.EncodeToString([]byte(engine.User + ":" + registryPassword))
	secrets := []string{keySecret, tokenSecret, badPassword, registryPassword, auth}
	roots := []string{w.Dir}
	for _, e := range w.engines {
		roots = append(roots, e.Dir)
	}
	files, size := 0, 0
	for _, root := range roots {
		if err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // removed meanwhile
			}
			b, err := os.ReadFile(p)
			if err != nil {
				return nil
			}
			files, size = files+1, size+len(b)
			for _, s := range secrets {
				if bytes.Contains(b, []byte(s)) {
					return fmt.Errorf("secret %s is in %s", s, p)
				}
			}
			return nil
		}); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d files, %d MiB", files, size>>20), nil
}

// leavesNothing checks that every container ended with its job.
func (w *world) leavesNothing(ctx context.Context) (string, error) {
	_, err := scenarios.Until(ctx, func() (bool, string, error) {
		var left []engine.Container
		for _, e := range w.engines {
			list, err := e.Containers(ctx)
			if err != nil {
				return false, "", err
			}
			left = append(left, list...)
		}
		return len(left) == 0, fmt.Sprintf("%+v", left), nil
	})
	return "none", err
}
