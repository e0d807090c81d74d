//go:build linux

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/starling-network/starling/testnet/images"
	"github.com/starling-network/starling/testnet/scenarios"
)

// running is what the steps of the Ray cluster share.
type running struct {
	up   bool
	port *scenarios.Collected // starling cluster port-forward
	url  string
}

const rayName = "ray"

func (w *world) raySteps() []scenarios.Step {
	return []scenarios.Step{
		{What: "ray: a cluster of peers behind NATs comes up", Run: w.rayUp},
		{What: "ray: every member has a path to the head", Run: w.onRay(w.paths)},
		{What: "ray: tasks, actors and an object of 120 MB on all nodes, handed in with starling job submit --cluster", Run: w.onRay(w.rayWork)},
		{What: "ray: its own command line hands in a job through port-forward, unchanged", Run: w.onRay(w.rayOwn)},
		{What: "ray: a worker's peer is killed and replaced while a job with retries goes on", Run: w.onRay(w.rayLost)},
		{What: "ray: taken down, and paid for what was used", Run: w.onRay(func(ctx context.Context) (string, error) { return w.down(ctx, rayName) })},
	}
}

// onRay makes a step that needs the cluster: without it there is nothing to wait for.
func (w *world) onRay(step func(context.Context) (string, error)) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if !w.running.up {
			return "", errors.New("there is no cluster")
		}
		return step(ctx)
	}
}

// rayUp brings the cluster up and waits until Ray itself sees all nodes.
func (w *world) rayUp(ctx context.Context) (string, error) {
	file, err := w.write(rayName, w.image[images.Ray], "{name: ray, objectStore: 400}")
	if err != nil {
		return "", err
	}
	began := time.Now()
	if _, err := w.done(ctx, "cluster", "up", file); err != nil {
		return "", err
	}
	ready := time.Since(began)
	if err := w.rayNodes(ctx); err != nil {
		return "", err
	}
	all := time.Since(began)
	w.running.up = true
	j, err := w.job(ctx, rayName)
	return fmt.Sprintf("%s; the head answers after %v, Ray sees %d nodes after %v, images and ray start included",
		w.hosts(j), ready.Round(time.Millisecond), members, all.Round(time.Millisecond)), err
}

// alive counts Ray's nodes by Ray's own state, on the head.
const alive = `import ray; ray.init(address="auto", log_to_driver=False); print("alive", sum(n["Alive"] for n in ray.nodes()))`

// rayNodes waits until Ray sees as many nodes alive as there are members.
func (w *world) rayNodes(ctx context.Context) error {
	_, err := scenarios.Until(ctx, func() (bool, string, error) {
		out, err := w.done(ctx, "cluster", "exec", rayName, "--", "python3", "-c", alive)
		return strings.Contains(out, fmt.Sprintf("alive %d", members)), out, err
	})
	return err
}

// paths: whom the command line shows as reached directly, and whom by relay.
func (w *world) paths(ctx context.Context) (string, error) {
	return scenarios.Until(ctx, func() (bool, string, error) {
		j, err := w.job(ctx, rayName)
		if err != nil {
			return false, "", err
		}
		var saw []string
		for i, r := range j.Ranks {
			if i == 0 {
				continue
			}
			if r.Live.Ways == nil || r.Live.Ways.Head == nil || r.Live.Ways.Head.Path == "none" {
				return false, fmt.Sprintf("node-%d has no path to the head", i), nil
			}
			h := r.Live.Ways.Head
			saw = append(saw, fmt.Sprintf("node-%d to the head: %s, %.1f ms, MTU %d", i, h.Path, h.RTTMillis, h.MTU))
		}
		return true, strings.Join(saw, "; "), nil
	})
}

// source is a directory with the programs, as a person has one.
func (w *world) source() (string, error) {
	dir := filepath.Join(w.Dir, "source")
	err := os.MkdirAll(dir, 0o755)
	for name, text := range programs() {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir, err
}

// spread is what the program says that uses all nodes.
type spread struct {
	Tasks   []string
	Actors  []string
	Bytes   int
	Copies  int
	Seconds float64
}

var spreadLine = regexp.MustCompile(`(?m)^\{"tasks".*\}$`)

func readSpread(out string) (s spread, err error) {
	line := spreadLine.FindString(out)
	if line == "" {
		return s, fmt.Errorf("the job does not say what it saw: %s", scenarios.Tail(out))
	}
	if err = json.Unmarshal([]byte(line), &s); err == nil && len(s.Tasks) != members {
		err = fmt.Errorf("tasks ran on %v", s.Tasks)
	}
	return s, err
}

func (w *world) rayWork(ctx context.Context) (string, error) {
	dir, err := w.source()
	if err != nil {
		return "", err
	}
	out, err := w.done(ctx, "job", "submit", "--cluster", rayName, "--working-dir", dir, "--", "python3", "spread.py", fmt.Sprint(members), "120")
	if err != nil {
		return "", err
	}
	s, err := readSpread(out)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("tasks and actors on %s; %d MB fetched by %d nodes in %.1f s, %.0f Mbit/s, the hash is right",
		strings.Join(s.Tasks, ", "), s.Bytes/1_000_000, s.Copies, s.Seconds, float64(s.Bytes)*float64(s.Copies)*8/1e6/s.Seconds), nil
}

var forwarded = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)`)

// rayOwn runs Ray's own program at the buyer's site, from the image's file system: on its own libraries, in no container.
func (w *world) rayOwn(ctx context.Context) (_ string, err error) {
	if w.running.port, err = w.follow("cluster", "port-forward", rayName, "0:8265"); err != nil {
		return "", err
	}
	if err := w.running.port.WaitFor(ctx, "-> port 8265", 1); err != nil {
		return "", err
	}
	m := forwarded.FindStringSubmatch(w.running.port.Text())
	if m == nil {
		return "", fmt.Errorf("port-forward says %q", w.running.port.Text())
	}
	w.running.url = "http://" + m[1]
	dir, err := w.source()
	if err != nil {
		return "", err
	}
	s, err := w.rayCommand(ctx, "job", "submit", "--address", w.running.url, "--working-dir", dir, "--", "python3", "spread.py", fmt.Sprint(members), "1").Run()
	if err != nil || s.Code != 0 {
		return "", fmt.Errorf("ray job submit --address %s: %v: %w", w.running.url, s, err)
	}
	if _, err := readSpread(s.Out); err != nil {
		return "", err
	}
	return fmt.Sprintf("ray job submit --address %s: job succeeded", w.running.url), nil
}

// rayCommand is Ray's own program at the buyer's site.
func (w *world) rayCommand(ctx context.Context, args ...string) scenarios.Command {
	start := []string{"--library-path", w.ray + "/usr/lib/x86_64-linux-gnu", w.ray + "/usr/bin/python3.11", "-c", "from ray.scripts.scripts import main; main()"}
	cmd := exec.CommandContext(ctx, w.ray+"/lib64/ld-linux-x86-64.so.2", append(start, args...)...)
	cmd.Env = []string{"PYTHONHOME=" + w.ray + "/usr", "PYTHONPATH=" + w.ray + "/usr/local/lib/python3.11/dist-packages", "PYTHONDONTWRITEBYTECODE=1",
		"HOME=" + w.Dir, "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "RAY_USAGE_STATS_ENABLED=0"}
	cmd.Dir = w.Dir
	return scenarios.Command{Cmd: cmd, Enter: w.buyer().site.Enter}
}

// rayLost: a member is killed in the middle of a job; another takes its rank, and the job ends well.
func (w *world) rayLost(ctx context.Context) (string, error) {
	dir, err := w.source()
	if err != nil {
		return "", err
	}
	work, err := w.follow("job", "submit", "--cluster", rayName, "--working-dir", dir, "--", "python3", "lasting.py", "120", "1")
	if err != nil {
		return "", err
	}
	if err := work.WaitFor(ctx, "left 110", 1); err != nil {
		return "", err
	}
	const rank = members - 1
	gone, err := w.lose(ctx, rayName, rank)
	if err != nil {
		return "", err
	}
	j, err := w.replaced(ctx, rayName, rank, gone)
	if err != nil {
		return "", err
	}
	w.Say("  %s", w.hosts(j))
	code, err := work.Wait(ctx)
	if err != nil || code != 0 || !strings.Contains(work.Text(), "sum 7140 on") {
		return "", fmt.Errorf("the job with retries: exit code %d, %s: %w", code, scenarios.Tail(work.Text()), err)
	}
	if err := w.rayNodes(ctx); err != nil {
		return "", err
	}
	if err := w.again(ctx, gone); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s was killed; now %s; the job's sum is right; what the lost one still ran has ended", gone.name, w.hosts(j)), nil
}

// down takes a cluster down and holds it to its receipts.
func (w *world) down(ctx context.Context, name string) (string, error) {
	if w.running.port != nil {
		w.running.port.End()
		w.running.port = nil
	}
	if _, err := w.done(ctx, "cluster", "down", "--wait", name); err != nil {
		return "", err
	}
	j, err := w.paid(ctx, name)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d receipts, owed and paid %s", j.Receipts, w.net.Genesis.FormatAmount(j.Paid)), nil
}
