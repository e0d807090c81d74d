//go:build linux

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/images"
	"github.com/starling-network/starling/testnet/scenarios"
)

// running is the state that the steps of a cluster share.
type running struct {
	up    string               // the cluster's name, once it is up
	port  *scenarios.Collected // starling cluster port-forward
	nodes []string             // Ray's ids of the members at its start
	lost  int                  // how many of them were killed
}

const rayName = "ray"

// rayCluster is the part of the scenario with a Ray cluster.
type rayCluster struct{ *world }

// steps returns the steps of a Ray cluster: all, or without the slow ones.
func (w rayCluster) steps(all bool) []scenarios.Step {
	steps := []scenarios.Step{
		{What: "ray: a cluster of peers behind NATs starts", Run: w.rayUp},
		{What: "ray: every member has a path to the head", Run: w.onCluster(rayName, w.paths)},
		{What: "ray: its own command line, unchanged, through port-forward: " +
			"tasks, actors and an object of 120 MB on all nodes",
			Run: w.onCluster(rayName, w.rayWork)},
		{What: "ray: a worker's peer is killed and replaced during a job with retries",
			Run: w.onCluster(rayName, w.rayLost)},
	}
	if all {
		steps = append(steps,
			scenarios.Step{
				What: "ray: a worker's container is killed and another's engine is stopped " +
					"during a job with retries",
				Run: w.onCluster(rayName, w.rayEngines)})
	}
	steps = append(steps, scenarios.Step{What: "ray: taken down, and paid for the used time",
		Run: w.onCluster(rayName, func(ctx context.Context) (string, error) {
			return w.down(ctx, rayName)
		})})
	if all {
		steps = append(steps, w.template("ray", images.Ray))
	}
	return steps
}

// onCluster makes a step that fails at once if there is no cluster.
func (w *world) onCluster(
	name string, step func(context.Context) (string, error),
) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if w.running.up != name {
			return "", errors.New("the cluster did not start")
		}
		return step(ctx)
	}
}

// rayUp starts the cluster and waits until Ray itself sees all nodes.
func (w rayCluster) rayUp(ctx context.Context) (string, error) {
	file, err := w.write(rayName, w.image[images.Ray], "{name: ray, objectStore: 400}")
	if err != nil {
		return "", err
	}
	began := time.Now()
	if _, err := w.done(ctx, "cluster", "up", file); err != nil {
		return "", err
	}
	ready := time.Since(began)
	if w.running.nodes, err = w.rayNodes(ctx, nil, 0); err != nil {
		return "", err
	}
	all := time.Since(began)
	w.running.up = rayName
	j, err := w.job(ctx, rayName)
	w.note("Ray saw %d nodes %.1f s after the order", members, all.Seconds())
	return fmt.Sprintf("%s; the head answers after %v, Ray sees %d nodes after %v, images and ray start included",
		w.hosts(j), ready.Round(time.Millisecond), members, all.Round(time.Millisecond)), err
}

// alive prints the ids of Ray's nodes that are alive by Ray's own state, on the head.
const alive = `import ray
ray.init(address="auto", log_to_driver=False)
print("alive", *(n["NodeID"] for n in ray.nodes() if n["Alive"]))`

// rayNodes waits until Ray reports as many nodes alive as there are members, and returns their ids. Of these, fresh are
// not among before, if that is set: Ray reports a lost node alive for as long as its health checks may still succeed.
func (w rayCluster) rayNodes(ctx context.Context, before []string, fresh int) (nodes []string, err error) {
	_, err = scenarios.Until(ctx, func() (bool, string, error) {
		out, err := w.done(ctx, "cluster", "exec", rayName, "--", "python3", "-c", alive)
		_, ids, _ := strings.Cut(out, "alive ")
		ids, _, _ = strings.Cut(ids, "\n")
		nodes = strings.Fields(ids)
		others := slices.DeleteFunc(slices.Clone(nodes), func(id string) bool { return slices.Contains(before, id) })
		return len(nodes) == members && (before == nil || len(others) == fresh), out, err
	})
	return nodes, err
}

// paths checks the path of each member to the head, as the command line shows it.
func (w rayCluster) paths(ctx context.Context) (string, error) {
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

// source creates a directory with the programs, as a user has it.
func (w *world) source() (string, error) {
	dir := filepath.Join(w.Dir, "source")
	err := os.MkdirAll(dir, 0o755)
	for name, text := range programs() {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir, err
}

// spread is the output of the program that uses all nodes.
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
		return s, fmt.Errorf("the job's output has no result: %s", scenarios.Tail(out))
	}
	if err = json.Unmarshal([]byte(line), &s); err == nil && len(s.Tasks) != members {
		err = fmt.Errorf("tasks ran on %v", s.Tasks)
	}
	return s, err
}

func (s spread) String() string {
	return fmt.Sprintf("tasks and more on %s; %d MB fetched by %d nodes in %.1f s, %.0f Mbit/s, the hash is right",
		strings.Join(s.Tasks, ", "), s.Bytes/1_000_000, s.Copies, s.Seconds, s.rate())
}

// rate is the transfer rate of the object between nodes, with its hashing, Mbit/s.
func (s spread) rate() float64 {
	return float64(s.Bytes) * float64(s.Copies) * 8 / 1e6 / max(s.Seconds, 0.001)
}

// rayWork submits the program that uses all nodes.
func (w rayCluster) rayWork(ctx context.Context) (string, error) {
	submit, err := w.raySubmit(ctx, "python3", "spread.py", fmt.Sprint(members), "120")
	if err != nil {
		return "", err
	}
	said, err := submit.Run()
	if err != nil || said.Code != 0 {
		return "", fmt.Errorf("%s: %v: %w", strings.Join(submit.Args, " "), said, err)
	}
	s, err := readSpread(said.Out)
	if err != nil {
		return "", err
	}
	w.note("%d MB went to %d other nodes at %.0f Mbit/s", s.Bytes/1_000_000, s.Copies, s.rate())
	return s.String(), nil
}

// raySubmit returns a command of Ray's own client at the buyer's site, which submits a command and follows it. It runs
// from the image's file system, with its own libraries, outside any container. Its address is that of port-forward.
func (w rayCluster) raySubmit(ctx context.Context, command ...string) (scenarios.Command, error) {
	said, err := w.forward(ctx, rayName, 8265)
	if err != nil {
		return scenarios.Command{}, err
	}
	url := forwarded.FindString(said)
	if url == "" {
		return scenarios.Command{}, fmt.Errorf("port-forward: unexpected output %q", said)
	}
	dir, err := w.source()
	args := []string{"-c", "from ray.scripts.scripts import main; main()", "job", "submit", "--address", url,
		"--working-dir", dir, "--"}
	return w.python(ctx, images.Ray, append(args, command...)...), err
}

// forward opens a tunnel to a port of a cluster's head, replaces the open one, and returns its output.
func (w *world) forward(ctx context.Context, name string, port int) (said string, err error) {
	w.unforward()
	if w.running.port, err = w.follow("cluster", "port-forward", name, fmt.Sprintf("0:%d", port)); err != nil {
		return "", err
	}
	err = w.running.port.WaitFor(ctx, fmt.Sprintf("-> port %d", port), 1)
	return w.running.port.Text(), err
}

func (w *world) unforward() {
	if w.running.port != nil {
		w.running.port.End()
		w.running.port = nil
	}
}

var forwarded = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// python is the Python of an image at the buyer's site, with the image's libraries.
func (w *world) python(ctx context.Context, image images.Name, args ...string) scenarios.Command {
	root := w.root[image]
	start := []string{"--library-path", root + "/usr/lib/x86_64-linux-gnu", root + "/usr/bin/python3.11"}
	cmd := exec.CommandContext(ctx, root+"/lib64/ld-linux-x86-64.so.2", append(start, args...)...)
	cmd.Env = []string{"PYTHONHOME=" + root + "/usr", "PYTHONPATH=" + root + "/usr/local/lib/python3.11/dist-packages",
		"PYTHONDONTWRITEBYTECODE=1", "HOME=" + w.Dir, "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "RAY_USAGE_STATS_ENABLED=0"}
	cmd.Dir = w.Dir
	return scenarios.Command{Cmd: cmd, Enter: w.buyer().site.Enter}
}

// lasting starts a job with retried tasks, and waits until some of them have run.
func (w rayCluster) lasting(ctx context.Context) (*scenarios.Collected, error) {
	submit, err := w.raySubmit(context.Background(), "python3", "lasting.py", "120", "1")
	if err != nil {
		return nil, err
	}
	work, err := scenarios.Follow(submit)
	if err != nil {
		return nil, err
	}
	return work, work.WaitFor(ctx, "left 110", 1)
}

// lasted waits for the end of lasting's job, and for Ray to see all nodes again.
func (w rayCluster) lasted(ctx context.Context, work *scenarios.Collected) error {
	code, err := work.Wait(ctx)
	if err != nil || code != 0 || !strings.Contains(work.Text(), "sum 7140 on") {
		return fmt.Errorf("the job with retries: exit code %d, %s: %w", code, scenarios.Tail(work.Text()), err)
	}
	_, err = w.rayNodes(ctx, nil, 0)
	return err
}

// rayLost kills a member during a job. Another provider takes its rank, and the job succeeds.
func (w rayCluster) rayLost(ctx context.Context) (string, error) {
	work, err := w.lasting(ctx)
	if err != nil {
		return "", err
	}
	const rank = members - 1
	began := time.Now()
	gone, err := w.lose(ctx, rayName, rank)
	if err != nil {
		return "", err
	}
	w.running.lost++
	j, err := w.replaced(ctx, rayName, rank, gone)
	if err != nil {
		return "", err
	}
	w.note("a killed peer's rank was replaced after %.0f s", time.Since(began).Seconds())
	w.Say("  %s", w.hosts(j))
	if err := w.lasted(ctx, work); err != nil {
		return "", err
	}
	if err := w.again(ctx, gone); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s was killed; now %s; the job's sum is right; the lost peer's old programs have ended",
		gone.name, w.hosts(j)), nil
}

// rayEngines kills the container of one worker, raylet and all, and stops the whole engine of another at the same time.
// Their peers run on and report it. Both ranks run again, the second one elsewhere, and the job succeeds.
func (w rayCluster) rayEngines(ctx context.Context) (got string, err error) {
	// Ray may start a job on a node that it has not missed yet, and the job fails.
	if _, err := w.rayNodes(ctx, w.running.nodes, w.running.lost); err != nil {
		return "", err
	}
	work, err := w.lasting(ctx)
	if err != nil {
		return "", err
	}
	j, err := w.job(ctx, rayName)
	if err != nil {
		return "", err
	}
	const first, second = 1, 2
	killed, stopped := w.at(j, first), w.at(j, second)
	if killed == nil || stopped == nil {
		return "", fmt.Errorf("some ranks do not run: %s", w.hosts(j))
	}
	w.Say("  killing the container of node-%d at %s, stopping the engine of node-%d at %s",
		first, killed.name, second, stopped.name)
	began := time.Now()
	if err := killed.killContainer(ctx); err != nil {
		return "", err
	}
	stopped.engine.Signal(syscall.SIGTERM)
	defer func() { // also after a failure: the end of the scenario queries all engines
		if !stopped.engine.Running() {
			err = errors.Join(err, stopped.engine.Restart(context.WithoutCancel(ctx)))
		}
	}()
	if _, err := w.replaced(ctx, rayName, first, lost{epoch: j.Ranks[first].Epoch}); err != nil {
		return "", err
	}
	j, err = w.replaced(ctx, rayName, second, lost{stopped, j.Ranks[second].Epoch})
	if err != nil {
		return "", err
	}
	w.note("a killed container's and a stopped engine's rank ran again after %.0f s", time.Since(began).Seconds())
	w.Say("  %s", w.hosts(j))
	if err := w.lasted(ctx, work); err != nil {
		return "", err
	}
	c, err := w.client()
	if err != nil {
		return "", err
	}
	steps, err := api.JobSteps.Call(ctx, c, api.ByID{ID: j.ID})
	if err != nil {
		return "", err
	}
	why := map[string]bool{}
	for _, s := range steps {
		if s.Kind == record.StepLost && strings.Contains(s.Detail, "sandbox ended from outside") {
			why[s.Detail] = true
		}
	}
	if len(why) == 0 {
		return "", errors.New("the trace has no reason for the lost ranks")
	}
	return fmt.Sprintf("now %s; the job's sum is right; the peers reported %q",
		w.hosts(j), strings.Join(slices.Sorted(maps.Keys(why)), "; ")), nil
}

// killContainer kills the only job container of the machine's engine, as an operator might.
func (m *machine) killContainer(ctx context.Context) error {
	list, err := m.engine.Containers(ctx)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(c engine.Container) bool { return c.State != "running" || c.Sidecar() })
	if len(list) != 1 {
		return fmt.Errorf("%s runs %d containers: %+v", m.name, len(list), list)
	}
	return m.engine.Call(ctx, http.MethodPost, "/containers/"+list[0].ID+"/kill", nil, nil)
}

// down takes a cluster down and compares the payment with its receipts.
func (w *world) down(ctx context.Context, name string) (string, error) {
	w.unforward()
	if _, err := w.done(ctx, "cluster", "down", "--wait", name); err != nil {
		return "", err
	}
	j, err := w.paid(ctx, name)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d receipts, owed and paid %s", j.Receipts, w.net.Genesis.FormatAmount(j.Paid)), nil
}
