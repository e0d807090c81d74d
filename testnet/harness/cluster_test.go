package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

// members is the program of a cluster's ranks. The head works for HEAD_SECONDS and ends with HEAD_EXIT; the others, and a head that
// is not told when to end, work until they are ended, or do nothing where QUIET is set.
func members() map[string]guest.Program {
	return map[string]guest.Program{"member": func(p guest.Process) int {
		seconds, _ := strconv.Atoi(env(p, "HEAD_SECONDS"))
		code, _ := strconv.Atoi(env(p, "HEAD_EXIT"))
		fmt.Fprintf(p.Stdout(), "rank %s of %s\n", env(p, "RANK"), env(p, "WORLD_SIZE"))
		if env(p, "QUIET") != "" {
			_ = p.Listen(1, func(c io.ReadWriteCloser) { _ = c.Close() }) // without end, and without any work
		}
		head := env(p, "RANK") == "0"
		for i := 0; ; i++ {
			if head && seconds > 0 && i >= seconds*1000 {
				return code
			}
			if i%100 == 0 {
				if _, err := guest.ReadFile(p, guest.StopFile, 1); err == nil {
					return 0
				}
			}
			p.Burn()
		}
	}}
}

// Cluster is a cluster of so many members whose engine does nothing of its own.
func (p *Peer) Cluster(size uint32, env map[string]string) job.Job {
	j := p.Container("member", "cpu", size)
	j.Cluster = &job.Cluster{Engine: "none", Options: map[string]string{"ends": "head"}, Network: cluster.WAN}
	j.Args, j.Env, j.Timeouts.Run = nil, env, 10*time.Minute
	cost, err := j.MaxCost()
	if err != nil {
		p.net.t.Fatal(err)
	}
	j.Payment.Budget = cost
	return j
}

// quiet has members do nothing, which costs a test the least.
var quiet = map[string]string{"QUIET": "1"}

// joined waits until every member of a cluster of so many goes by one plan, and reaches every other one.
func (p *Peer) joined(id string, size int) buyer.Job {
	p.net.t.Helper()
	return p.until(id, func(j buyer.Job) bool { return whole(j, size) })
}

// whole reports whether a cluster has so many members, which all go by one plan and reach each other.
func whole(j buyer.Job, size int) bool {
	if len(j.Ranks) != size || int(j.Cluster.Size) != size || len(j.Cluster.Members) != size {
		return false
	}
	for _, r := range j.Ranks {
		if w := r.Live.Ways; r.State != buyer.RankRunning || w == nil || w.Plan != j.Cluster.Version || w.Direct != size-1 || w.Cut != 0 {
			return false
		}
	}
	return true
}

// told checks that every member's program finds what was measured of the paths between all of them.
func (n *Net) told(t *testing.T, j buyer.Job) {
	t.Helper()
	files := 0
	for _, p := range n.Peers {
		for _, b := range p.Engine.OverlayFiles(cluster.FileCluster) {
			var d struct {
				Version uint64
				Class   cluster.Class
				Members []cluster.Node
				Paths   struct {
					RTT [][]uint32 `json:"rtt_micros"`
				}
			}
			err := json.Unmarshal(b, &d)
			if err == nil && d.Version < j.Cluster.Version {
				continue // one that was lost, and does not know it yet
			}
			files++
			if err != nil || d.Version != j.Cluster.Version || d.Class != j.Network.Class || len(d.Members) != len(j.Ranks) || len(d.Paths.RTT) != len(j.Ranks) {
				t.Errorf("version %d on a %s, %v; it finds %s", j.Cluster.Version, j.Network.Class, err, b)
				continue
			}
			for _, row := range d.Paths.RTT {
				if slices.Contains(row, 0) {
					t.Errorf("a path between two peers is not known, or no way: %s", b)
				}
			}
		}
	}
	if files != len(j.Ranks) {
		t.Errorf("%d members, %d find a cluster.json", len(j.Ranks), files)
	}
}

// measures checks that what a peer shows of itself has lines that begin so.
func (p *Peer) measures(t *testing.T, lines ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	p.Metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, l := range lines {
		if !strings.Contains(w.Body.String(), "\n"+l) {
			t.Errorf("status %d, no %s in\n%s", w.Code, l, w.Body)
		}
	}
}

// takeDown stops a cluster, and fails the test unless its money is right.
func (n *Net) takeDown(t *testing.T, b *Peer, id string) {
	t.Helper()
	if err := b.Buyer().Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	n.check(t, b, b.Wait(id, 5*time.Minute), buyer.Stopped)
}

// on is the number of the peer that a rank runs on.
func (n *Net) on(j buyer.Job, rank int) int {
	return slices.IndexFunc(n.Peers, func(p *Peer) bool { return p.Key.Key() == j.Ranks[rank].Provider })
}

// One member lost: only its rank is ordered again and joins under a new epoch; who comes back late is let in no more. When the head
// has ended well, the others are ended and the job has succeeded.
func TestClusterReplacesAMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 5, Units: 1, Programs: members(), Log: Logger()})
		time.Sleep(4 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.Cluster(3, map[string]string{"HEAD_SECONDS": "60"})).ID
		j := b.joined(id, 3)
		if j.Cluster.Ready.IsZero() {
			t.Error("the cluster is not ready")
		}
		n.told(t, j)
		old, lost := n.Overlays.Ranks(), n.on(j, 1)
		n.Provider(lost).Kill()
		after := b.until(id, func(j buyer.Job) bool { return j.Ranks[1].Epoch == 2 })
		j = b.joined(id, 3)
		if j.Ranks[0].Epoch != 1 || j.Ranks[0].Seq != 1 || j.Ranks[2].Epoch != 1 || j.Ranks[2].Seq != 1 || j.Cluster.Generation != 0 {
			t.Errorf("not only the lost rank began again: %+v", after.Ranks)
		}
		n.told(t, j)
		n.Provider(lost).Restart()
		time.Sleep(10 * time.Second)
		for _, k := range old[1] {
			for rank, keys := range n.Overlays.Ranks() {
				for _, other := range keys {
					if other != k && n.Overlays.Reach(other, k) {
						t.Errorf("rank %d lets in the one that was lost", rank)
					}
				}
			}
		}
		j = b.Wait(id, 5*time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		for i, r := range j.Ranks {
			if r.State != buyer.RankDone {
				t.Errorf("rank %d is %s", i, r.State)
			}
		}
		n.Settle()
		if left := n.Overlays.Ranks(); len(left) > 0 {
			t.Errorf("members are left: %v", left)
		}
		for i := range 5 {
			n.checkQuiet(t, n.Provider(i), b)
		}
	})
}

// The head's end is the engine's: where it binds the others, all begin again with the one that replaces it.
func TestClusterBeginsAgainWithItsHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 4, Units: 1, Programs: members(), Log: Logger()})
		time.Sleep(4 * time.Second)
		b := n.Buyer(0)
		spec := b.Cluster(3, quiet)
		spec.Cluster = &job.Cluster{Engine: "torchrun", Command: []string{"train.py"}, Network: cluster.Metro}
		id := b.Submit(spec).ID
		j := b.joined(id, 3)
		n.Provider(n.on(j, 0)).Kill()
		j = b.until(id, func(j buyer.Job) bool { // the others may be in the new plan before they begin again
			return whole(j, 3) && j.Ranks[0].Epoch == 2 && j.Ranks[1].Seq > 1 && j.Ranks[2].Seq > 1
		})
		if j.Cluster.Generation != 1 || j.Ranks[1].Seq != 2 || j.Ranks[2].Seq != 2 || j.Ranks[1].Epoch != 1 || j.Ranks[1].Retries != 0 {
			t.Errorf("generation %d, ranks %+v", j.Cluster.Generation, j.Ranks)
		}
		n.takeDown(t, b, id)
		n.Settle()
	})
}

// A cluster that is scaled orders what is missing, all or none, and ends the highest ranks; its budget follows, and whoever has a
// rank again has a higher epoch.
func TestClusterScales(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 4, Units: 1, Programs: members(), Log: Logger()})
		time.Sleep(4 * time.Second)
		b := n.Buyer(0)
		spec := b.Cluster(2, quiet)
		spec.Timeouts.Queue = 5 * time.Second
		id := b.Submit(spec).ID
		was := b.joined(id, 2)
		j, err := b.Buyer().Scale(t.Context(), id, 4)
		if err != nil {
			t.Fatal(err)
		}
		if j.Spec.Count != 4 || j.Spec.Payment.Budget != 2*was.Spec.Payment.Budget {
			t.Errorf("of 4 members the budget is %d, of 2 it was %d", j.Spec.Payment.Budget, was.Spec.Payment.Budget)
		}
		j = b.joined(id, 4)
		if j.Ranks[0].Seq != 1 || j.Ranks[1].Seq != 1 {
			t.Errorf("members that were there began again: %+v", j.Ranks)
		}
		n.told(t, j)
		b.measures(t, `starling_clusters{ready="true"} 1`, `starling_cluster_ways{path="direct"} 12`, `starling_cluster_ways{path="none"} 0`, `starling_jobs{state="running"} 1`)
		n.Provider(n.on(j, 3)).measures(t, "starling_cluster_executions 1", `starling_leases{state="active"} 1`, `starling_units{state="taken"} 1`, "starling_connected_peers ",
			"starling_egress_flows 0", "starling_egress_memory_bytes 0", "starling_egress_memory_limit_bytes ", `starling_connections{direction=`, "go_goroutines ", "starling_chain_reachable 1")
		// There is nobody for a fifth.
		if j, err = b.Buyer().Scale(t.Context(), id, 5); !errors.Is(err, buyer.ErrRefused) || len(j.Ranks) != 4 || j.Spec.Count != 4 || j.Spec.Payment.Budget != 2*was.Spec.Payment.Budget {
			t.Errorf("%d ranks, %v", len(j.Ranks), err)
		}
		// Nor with more money, which it does not keep either.
		if j, err = b.Buyer().ScaleWithin(t.Context(), id, 5, 9*was.Spec.Payment.Budget); !errors.Is(err, buyer.ErrRefused) || len(j.Ranks) != 4 || j.Spec.Payment.Budget != 2*was.Spec.Payment.Budget {
			t.Errorf("%d ranks, budget %d, %v", len(j.Ranks), j.Spec.Payment.Budget, err)
		}
		for _, bad := range []struct {
			n      uint32
			budget market.Amount
			want   error
		}{{4, 1, buyer.ErrRefused}, {2, 9 * was.Spec.Payment.Budget, buyer.ErrRefused}} {
			if j, err = b.Buyer().ScaleWithin(t.Context(), id, bad.n, bad.budget); !errors.Is(err, bad.want) || j.Spec.Payment.Budget != 2*was.Spec.Payment.Budget {
				t.Errorf("to %d with a budget of %d: %v", bad.n, bad.budget, err)
			}
		}
		if _, err := b.Buyer().Scale(t.Context(), id, 1); err != nil {
			t.Fatal(err)
		}
		b.joined(id, 1)
		time.Sleep(5 * time.Second)
		if left := n.Overlays.Ranks(); len(left) != 1 || len(left[0]) != 1 {
			t.Errorf("members %v, want the head alone", left)
		}
		if j, err = b.Buyer().ScaleWithin(t.Context(), id, 3, 7*was.Spec.Payment.Budget); err != nil || j.Spec.Payment.Budget != 7*was.Spec.Payment.Budget {
			t.Fatalf("budget %d, %v", j.Spec.Payment.Budget, err)
		}
		if j, err = b.Buyer().ScaleWithin(t.Context(), id, 3, 8*was.Spec.Payment.Budget); err != nil || j.Spec.Payment.Budget != 8*was.Spec.Payment.Budget || len(j.Ranks) != 3 {
			t.Errorf("%d ranks, budget %d, %v", len(j.Ranks), j.Spec.Payment.Budget, err)
		}
		if j = b.joined(id, 3); j.Ranks[1].Epoch != 2 || j.Ranks[2].Epoch <= 1 {
			t.Errorf("ranks that were there before have epochs %d and %d", j.Ranks[1].Epoch, j.Ranks[2].Epoch)
		}
		for _, bad := range []uint32{0, cluster.MaxMembers + 1} {
			if _, err := b.Buyer().Scale(t.Context(), id, bad); !errors.Is(err, buyer.ErrRefused) {
				t.Errorf("to %d: %v", bad, err)
			}
		}
		n.takeDown(t, b, id)
		n.checkPayer(t, b)
		n.Settle()
		for i := range 4 {
			n.checkQuiet(t, n.Provider(i), b)
		}
		if _, err := b.Buyer().Scale(t.Context(), id, 3); !errors.Is(err, buyer.ErrNotRunning) {
			t.Errorf("after its end: %v", err)
		}
	})
}

// A buyer that was killed takes its cluster up where it is, whatever happened meanwhile; a member's peer that was has the plan of
// now soon after it is back.
func TestClusterSurvivesRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 5, Units: 1, Programs: members(), Log: Logger()})
		time.Sleep(4 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.Cluster(3, quiet)).ID
		j := b.joined(id, 3)
		token, err := b.Buyer().ClusterToken(id)
		if err != nil || len(token) != 64 {
			t.Errorf("token %q, %v", token, err)
		}
		b.Kill()
		time.Sleep(2 * time.Second)
		b.Restart()
		now := b.joined(id, 3)
		if now.Cluster.Version != j.Cluster.Version || now.Ranks[0].Seq != 1 || now.Ranks[1].Epoch != 1 {
			t.Errorf("version %d, it was %d; %+v", now.Cluster.Version, j.Cluster.Version, now.Ranks)
		}
		if again, err := b.Buyer().ClusterToken(id); err != nil || again != token {
			t.Errorf("another token, %v", err)
		}
		b.Kill()
		n.Provider(n.on(j, 2)).Kill()
		time.Sleep(2 * time.Second)
		b.Restart()
		b.until(id, func(j buyer.Job) bool { return j.Ranks[2].Epoch == 2 })
		j = b.joined(id, 3)
		// A member's peer is gone for a moment while another member is lost: it comes back with an old plan.
		back := n.Provider(n.on(j, 1))
		back.Kill()
		time.Sleep(time.Second)
		back.Restart()
		now = b.joined(id, 3)
		n.takeDown(t, b, id)
		n.Settle()
		if left := n.Overlays.Ranks(); len(left) > 0 {
			t.Errorf("members are left: %v", left)
		}
	})
}

// A cluster that nobody uses is taken down after as long as its user said.
func TestClusterStopsWhenIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Units: 1, Programs: members(), Log: Logger()})
		time.Sleep(4 * time.Second)
		b := n.Buyer(0)
		idle, works := b.Cluster(1, quiet), b.Cluster(1, nil)
		idle.Cluster.Autostop, works.Cluster.Autostop = job.Span(time.Minute), job.Span(time.Minute)
		still, busy := b.Submit(idle).ID, b.Submit(works).ID
		j := b.Wait(still, 5*time.Minute)
		n.check(t, b, j, buyer.Stopped)
		if ran := j.Ended.Sub(j.Started); ran < time.Minute || j.Reason != "idle for 1m0s (autostop)" {
			t.Errorf("%q after %v", j.Reason, ran)
		}
		time.Sleep(time.Minute)
		if j = b.joined(busy, 1); !j.Cluster.Idle.IsZero() {
			t.Error("a cluster that computes is idle")
		}
		n.takeDown(t, b, busy)
	})
}

// Members that hold units and vanish while the cluster forms, and two at once while it runs, are replaced; nobody is paid for nothing.
func TestClusterMembersVanish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 6, Units: 1, Programs: members(), Log: Logger()})
		time.Sleep(4 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.Cluster(3, quiet)).ID
		gone := -1
		for gone < 0 {
			time.Sleep(time.Millisecond)
			if held := b.steps(t, id, record.StepHeld); len(held) > 0 {
				gone = slices.IndexFunc(n.Peers, func(p *Peer) bool { return p.Key.Key().String() == held[0].Provider })
			}
		}
		n.Provider(gone).Kill()
		j := b.joined(id, 3)
		for i := range j.Ranks {
			if n.on(j, i) == gone {
				t.Errorf("rank %d is on the peer that vanished", i)
			}
		}
		n.Provider(n.on(j, 1)).Kill()
		n.Provider(n.on(j, 2)).Kill()
		b.until(id, func(j buyer.Job) bool { return j.Ranks[1].Epoch > 1 && j.Ranks[2].Epoch > 1 })
		if j = b.joined(id, 3); j.Ranks[0].Seq != 1 {
			t.Error("the head began again")
		}
		n.takeDown(t, b, id)
		n.checkPayer(t, b)
	})
}
