//go:build linux

package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	programsof "github.com/starling-network/starling/testnet/jobs/cluster"
	"github.com/starling-network/starling/testnet/scenarios"
)

// programs are the programs of the clusters, by file name.
func programs() map[string]string {
	all, err := programsof.Programs()
	if err != nil {
		panic(err) // they are embedded in this binary
	}
	return all
}

// command returns a starling command of the buyer, at the buyer's site.
func (w *world) command(ctx context.Context, args ...string) scenarios.Command {
	cmd := exec.CommandContext(ctx, w.Binary, append([]string{"--home", w.buyer().peer.Home}, args...)...)
	cmd.Dir = w.Dir
	return scenarios.Command{Cmd: cmd, Enter: w.buyer().site.Enter}
}

// done runs a command of the buyer that must succeed, and returns its output.
func (w *world) done(ctx context.Context, args ...string) (string, error) {
	s, err := w.command(ctx, args...).Run()
	if err == nil && s.Code != 0 {
		err = fmt.Errorf("starling %s: %v", strings.Join(args, " "), s)
	}
	return s.Out, err
}

// follow starts a long-running command of the buyer.
func (w *world) follow(args ...string) (*scenarios.Collected, error) {
	return scenarios.Follow(w.command(context.Background(), args...))
}

func (w *world) client() (*api.Client, error) { return w.buyer().peer.Client() }

// clusterFile is a user's cluster file.
const clusterFile = `apiVersion: v1
kind: Cluster
metadata: {name: %s}
spec:
  size: %d
  image: %s
  engine: %s
  resources: {units: 1}
  restart: {max: 5}
  timeouts: {queue: 5m, run: 30m, stop: 3s}
  payment: {maxPrice: 1/unit-hour, budget: 5}
`

// write creates the file of a cluster, with additional lines.
func (w *world) write(name, image, engine string, more ...string) (string, error) {
	path := filepath.Join(w.Dir, name+".yaml")
	text := fmt.Sprintf(clusterFile, name, members, image, engine) + strings.Join(more, "\n") + "\n"
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// job returns the buyer's record of a named cluster.
func (w *world) job(ctx context.Context, name string) (record.Job, error) {
	c, err := w.client()
	if err != nil {
		return record.Job{}, err
	}
	jobs, err := c.Jobs(ctx, record.Query{Name: name})
	if err != nil {
		return record.Job{}, err
	}
	i := slices.IndexFunc(jobs, func(j record.Job) bool { return j.Spec.Name == name })
	if i < 0 {
		return record.Job{}, fmt.Errorf("cluster %s: not found", name)
	}
	return api.GetJob.Call(ctx, c, api.ByID{ID: jobs[i].ID})
}

// at returns the machine that runs a rank, or nil.
func (w *world) at(j record.Job, rank int) *machine {
	i := slices.IndexFunc(w.all, func(m *machine) bool { return m.peer.Key == j.Ranks[rank].Provider })
	if i < 0 {
		return nil
	}
	return w.all[i]
}

// hosts lists the machine of each rank.
func (w *world) hosts(j record.Job) string {
	var out []string
	for i := range j.Ranks {
		name := "nobody"
		if m := w.at(j, i); m != nil {
			name = m.name
		}
		out = append(out, fmt.Sprintf("node-%d at %s", i, name))
	}
	return strings.Join(out, ", ")
}

// paid compares the payments of an ended cluster with its receipts.
func (w *world) paid(ctx context.Context, name string) (record.Job, error) {
	j, err := w.job(ctx, name)
	if err != nil {
		return j, err
	}
	c, err := w.client()
	if err != nil {
		return j, err
	}
	return scenarios.Paid(ctx, w.net, c, j.ID, w.killed...)
}

// lose kills the peer of a rank other than the head, as a power cut would, and returns it. The machine's engine and
// containers keep running, unreachable.
func (w *world) lose(ctx context.Context, name string, rank int) (lost, error) {
	j, err := w.job(ctx, name)
	if err != nil {
		return lost{}, err
	}
	m := w.at(j, rank)
	if m == nil {
		return lost{}, fmt.Errorf("rank %d: no machine runs it: %s", rank, j.Summary())
	}
	w.Say("  killing the peer at %s, which runs node-%d", m.name, rank)
	w.killed = append(w.killed, m.peer.Key)
	return lost{m, j.Ranks[rank].Epoch}, m.peer.Kill()
}

// lost is a machine with a killed peer, and the epoch of its rank.
type lost struct {
	*machine
	epoch uint32
}

// replaced waits until another machine runs the rank under a later epoch.
func (w *world) replaced(ctx context.Context, name string, rank int, gone lost) (record.Job, error) {
	var j record.Job
	_, err := scenarios.Until(ctx, func() (bool, string, error) {
		var err error
		if j, err = w.job(ctx, name); err != nil {
			return false, "", err
		}
		m, r := w.at(j, rank), j.Ranks[rank]
		if j.State.Ended() {
			return false, "", fmt.Errorf("the cluster %s: %s", j.State, j.Reason)
		}
		return m != nil && m != gone.machine && r.Epoch > gone.epoch,
			fmt.Sprintf("%s, epoch %d: %s", w.hosts(j), r.Epoch, j.Summary()), nil
	})
	return j, err
}

// again starts a killed peer and waits until its old container, of the replaced member, has ended.
func (w *world) again(ctx context.Context, m lost) error {
	if err := m.peer.Start(ctx); err != nil {
		return err
	}
	_, err := scenarios.Until(ctx, func() (bool, string, error) {
		list, err := m.engine.Containers(ctx)
		return len(list) == 0, fmt.Sprintf("%+v", list), err
	})
	if err != nil {
		return fmt.Errorf("the old member at %s does not end: %w", m.name, err)
	}
	return nil
}
