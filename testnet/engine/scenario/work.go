//go:build linux

package scenario

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/scenarios"
)

const (
	registryPassword = engine.Password
	mock             = "dgxh100"
)

// running is the job of the first steps.
type running struct {
	id   string
	log  *scenarios.Collected // starling logs -f
	port *scenarios.Collected // starling job port-forward
	url  string
	ids  map[string]bool // the job's containers
}

// jobFile is a user's job file. The registry's password and a secret come from the submitter's environment.
const jobFile = `apiVersion: v1
kind: Job
metadata: {name: %s}
spec:
  image: %s
  registryAuth: {username: %s, passwordFrom: env:REGISTRY_PASSWORD}
  args: [work]
  secrets:
  - {name: key, from: file:key.txt}
  - {env: TOKEN, from: env:TOKEN}
  inputs: [{src: input.txt, dst: /data/input.txt}]
  outputs: [{src: /out}]
  health: {http: {port: 8080, path: /healthz}, interval: 1s, timeout: 5s, retries: 3}
  restart: {max: 3, policy: on-failure, backoff: 100ms}
  timeouts: {queue: 30s, run: 5m, stop: 1s}
  payment: {maxPrice: 1/unit-hour, budget: 0.5}
`

// begin submits the job file and waits until its program serves.
func (w *world) begin(ctx context.Context, name string) (running, error) {
	var r running
	path := filepath.Join(w.Dir, name+".yaml")
	tag, _, _ := strings.Cut(w.private, "@") // the submission resolves its digest
	if err := errors.Join(
		os.WriteFile(path, fmt.Appendf(nil, jobFile, name, tag, engine.User), 0o600),
		os.WriteFile(filepath.Join(w.Dir, "key.txt"), []byte(keySecret), 0o600),
		os.WriteFile(filepath.Join(w.Dir, "input.txt"), []byte("brought by the buyer\n"), 0o600),
	); err != nil {
		return r, err
	}
	quoted, err := w.starling(ctx, "quote", path) // there may be no offer yet
	if err != nil {
		return r, err
	}
	if !strings.Contains(quoted.Out, w.private) {
		return r, fmt.Errorf("the image of a quote: got %v, want %s", quoted, w.private)
	}
	out, err := w.done(ctx, "submit", "-d", path)
	if err != nil {
		return r, err
	}
	r.id = strings.TrimSpace(out)
	// the secret must be in no other file; this file is the user's own
	if err := os.Remove(filepath.Join(w.Dir, "key.txt")); err != nil {
		return r, err
	}
	if r.log, err = w.follow("logs", "-f", r.id); err != nil {
		return r, err
	}
	return r, r.log.WaitFor(ctx, "serving", 1)
}

// submits checks that the job runs, has its secrets, and is reported healthy.
func (w *world) submits(ctx context.Context) (got string, err error) {
	if w.work, err = w.begin(ctx, "work"); err != nil {
		return "", err
	}
	want := fmt.Sprintf("secret file %x, variable %x", digest(keySecret), digest(tokenSecret))
	if !strings.Contains(w.work.log.Text(), want) {
		return "", fmt.Errorf("unexpected log: got %q, want %q", w.work.log.Text(), want)
	}
	if j, err := w.job(ctx, w.work.id); err != nil || j.Spec.Image != w.private {
		return "", fmt.Errorf("the image is %q, want %q: %w", j.Spec.Image, w.private, err)
	}
	if w.work.ids, err = w.containers(ctx); err != nil {
		return "", err
	}
	return scenarios.Until(ctx, func() (bool, string, error) {
		out, err := w.done(ctx, "status", w.work.id)
		return strings.Contains(out, "running, healthy"), "running, healthy, in container " + short(w.work.ids), err
	})
}

func digest(s string) []byte {
	b := sha256.Sum256([]byte(s))
	return b[:4]
}

// containers lists the job containers of all engines.
func (w *world) containers(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	for _, e := range w.engines {
		list, err := e.Containers(ctx)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			if !c.Sidecar() {
				all[c.ID] = true
			}
		}
	}
	return all, nil
}

func short(ids map[string]bool) string {
	var out []string
	for id := range ids {
		out = append(out, id[:min(12, len(id))])
	}
	return strings.Join(out, ", ")
}

func (w *world) execs(ctx context.Context) (string, error) {
	s, err := w.starling(ctx, "exec", w.work.id, "--", "/box", "exit", "42")
	if err != nil || s.Code != 42 {
		return "", fmt.Errorf("exec of a command that exits with 42: %v: %w", s, err)
	}
	s, err = w.fed(ctx, "through the container", "exec", "-i", w.work.id, "--", "/box", "cat")
	if err != nil || s.Code != 0 || s.Out != "through the container" {
		return "", fmt.Errorf("exec of cat: %v: %w", s, err)
	}
	s, err = w.starling(ctx, "exec", w.work.id, "--", "/nowhere")
	if err != nil || s.Code == 0 || !strings.Contains(s.Err, "/nowhere") {
		return "", fmt.Errorf("exec of a missing program: %v: %w", s, err)
	}
	return "exit code 42, input echoed", nil
}

func (w *world) copies(ctx context.Context) (string, error) {
	local := filepath.Join(w.Dir, "note.txt")
	if err := os.WriteFile(local, []byte("copied in\n"), 0o600); err != nil {
		return "", err
	}
	if _, err := w.done(ctx, "cp", local, w.work.id+":/out/note.txt"); err != nil {
		return "", err
	}
	back := filepath.Join(w.Dir, "back.txt")
	if _, err := w.done(ctx, "cp", w.work.id+":/out/note.txt", back); err != nil {
		return "", err
	}
	if b, err := os.ReadFile(back); err != nil || string(b) != "copied in\n" {
		return "", fmt.Errorf("the file was copied back as %q: %w", b, err)
	}
	s, err := w.starling(ctx, "cp", w.work.id+":/etc/passwd", back)
	if err != nil || s.Code == 0 || !strings.Contains(s.Err, "/out") {
		return "", fmt.Errorf("copying /etc/passwd: %v: %w", s, err)
	}
	s, err = w.starling(ctx, "cp", local, w.work.id+":/data/input.txt")
	if err != nil || s.Code == 0 || !strings.Contains(s.Err, "read-only") {
		return "", fmt.Errorf("writing an input: %v: %w", s, err)
	}
	return "in and out; /etc/passwd is out of reach, the input is read-only", nil
}

var listening = regexp.MustCompile(`(?m)^(127\.0\.0\.1:\d+) -> port 8080 of rank 0$`)

func (w *world) forwards(ctx context.Context) (got string, err error) {
	if w.work.port, err = w.follow("job", "port-forward", w.work.id, "0:8080"); err != nil {
		return "", err
	}
	if err := w.work.port.WaitFor(ctx, "-> port 8080", 1); err != nil {
		return "", err
	}
	m := listening.FindStringSubmatch(w.work.port.Text())
	if m == nil {
		return "", fmt.Errorf("port-forward: unexpected output %q", w.work.port.Text())
	}
	w.work.url = "http://" + m[1]
	n, err := w.ask(ctx, http.MethodGet, "/ticks")
	return "GET /ticks: " + strings.TrimSpace(n), err
}

// ask sends a request to the program's server through the forwarded port.
func (w *world) ask(ctx context.Context, method, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.work.url+path, nil)
	if err != nil {
		return "", err
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w; output of port-forward: %q", method, path, err, w.work.port.Text())
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, path, res.Status)
	}
	return string(b), err
}

// pauses checks that the engine reports the pause, no tick arrives, and the program notices the freeze afterwards.
func (w *world) pauses(ctx context.Context) (string, error) {
	if _, err := w.done(ctx, "job", "pause", w.work.id); err != nil {
		return "", err
	}
	at, err := w.provider(ctx, w.work.id)
	if err != nil {
		return "", err
	}
	if _, err := scenarios.Until(ctx, func() (bool, string, error) {
		list, err := w.engines[at].Containers(ctx)
		return len(list) == 1 && list[0].State == "paused", fmt.Sprintf("%+v", list), err
	}); err != nil {
		return "", err
	}
	// The program must report the length of the freeze.
	select {
	case <-time.After(1500 * time.Millisecond):
	case <-ctx.Done():
	}
	if out, err := w.done(ctx, "ps"); err != nil || !strings.Contains(out, "paused") {
		return "", fmt.Errorf("unexpected state in ps: %q: %w", out, err)
	}
	if _, err := w.done(ctx, "job", "resume", w.work.id); err != nil {
		return "", err
	}
	if err := w.work.log.WaitFor(ctx, "frozen for", 1); err != nil {
		return "", err
	}
	return "the engine reports paused; the program reports " + regexp.MustCompile(`frozen for \d+ ms`).
		FindString(w.work.log.Text()), nil
}

func (w *world) restarts(ctx context.Context) (string, error) {
	if _, err := w.ask(ctx, http.MethodPost, "/fail"); err != nil {
		return "", err
	}
	if err := w.work.log.WaitFor(ctx, "serving", 2); err != nil {
		return "", err
	}
	j, err := w.job(ctx, w.work.id)
	if err != nil {
		return "", err
	}
	r := j.Ranks[0]
	if r.Retries != 1 || r.Restarts != 0 || !strings.Contains(w.work.log.Text(), "asked to fail") {
		return "", fmt.Errorf("started again %d times, lost %d times, log %q",
			r.Retries, r.Restarts, scenarios.Tail(w.work.log.Text()))
	}
	if w.work.ids, err = w.containers(ctx); err != nil || len(w.work.ids) != 1 {
		return "", fmt.Errorf("containers %v: %w", w.work.ids, err)
	}
	return "exit code 7, once more on the same lease, in container " + short(w.work.ids), nil
}

// adopts kills the peer, but not its container. The restarted peer must adopt the container.
func (w *world) adopts(ctx context.Context) (string, error) {
	before, err := w.job(ctx, w.work.id)
	if err != nil {
		return "", err
	}
	at, err := w.provider(ctx, w.work.id)
	if err != nil {
		return "", err
	}
	ticks, err := w.ask(ctx, http.MethodGet, "/ticks")
	if err != nil {
		return "", err
	}
	victim := w.net.Providers()[at]
	if err := victim.Kill(); err != nil {
		return "", err
	}
	if now, err := w.containers(ctx); err != nil || short(now) != short(w.work.ids) {
		return "", fmt.Errorf("containers after the kill: %s: %w", short(now), err)
	}
	if err := victim.Start(ctx); err != nil {
		return "", err
	}
	var later string
	if _, err := scenarios.Until(ctx, func() (done bool, saw string, err error) {
		later, err = w.ask(ctx, http.MethodGet, "/ticks")
		return err == nil, later, err
	}); err != nil {
		return "", err
	}
	after, err := w.job(ctx, w.work.id)
	if err != nil {
		return "", err
	}
	now, err := w.containers(ctx)
	if err != nil || short(now) != short(w.work.ids) {
		return "", fmt.Errorf("the container was %s and is %s: %w", short(w.work.ids), short(now), err)
	}
	if after.Ranks[0].Lease != before.Ranks[0].Lease || after.Ranks[0].Restarts != before.Ranks[0].Restarts ||
		after.Ranks[0].Retries != before.Ranks[0].Retries {
		return "", fmt.Errorf("the rank was %+v and is %+v", before.Ranks[0], after.Ranks[0])
	}
	return fmt.Sprintf("%s was killed at tick %s and adopted it at tick %s: same container, same lease",
		victim.Name, strings.TrimSpace(ticks), strings.TrimSpace(later)), nil
}

// finishes checks that the program's outputs arrived, and that the provider received exactly the receipts' amount.
func (w *world) finishes(ctx context.Context) (string, error) {
	if _, err := w.ask(ctx, http.MethodPost, "/finish"); err != nil {
		return "", err
	}
	w.work.port.End()
	if _, err := w.done(ctx, "wait", w.work.id); err != nil {
		steps, _ := w.done(ctx, "why", w.work.id)
		return "", fmt.Errorf("%w\n%s", err, steps)
	}
	if _, err := w.work.log.Wait(ctx); err != nil {
		return "", err
	}
	dir := filepath.Join(w.Dir, "results-"+w.work.id)
	if _, err := w.done(ctx, "get", w.work.id, dir); err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(dir, "out", "result.txt"))
	if err != nil || !strings.HasPrefix(string(b), "BROUGHT BY THE BUYER\n") {
		return "", fmt.Errorf("the result is %q: %w", b, err)
	}
	j, err := w.paid(ctx, w.work.id)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s; %d receipts, owed and paid %s", j.State, j.Receipts, w.net.Genesis.FormatAmount(j.Paid)),
		nil
}

// paid compares the payments of an ended job with its receipts.
func (w *world) paid(ctx context.Context, id string) (record.Job, error) {
	c, err := w.client()
	if err != nil {
		return record.Job{}, err
	}
	return scenarios.Paid(ctx, w.net, c, id)
}
