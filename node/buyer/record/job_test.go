package record

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/replica"
)

// full is a job with a value in every part.
func full() Job {
	return Job{
		ID: "jtest", Spec: spec(2), State: Running, Created: at, Started: at, Carry: &Blob{CID: "carry"},
		Ranks: []Rank{{State: RankDone, Outputs: []Output{{"/out", Blob{CID: "out"}}}}, {State: RankRunning, Log: &Blob{CID: "log"}}},
		Lost:  []sign.Key{{1}}, Orders: []market.OrderID{{2}}, Transactions: []string{"tx1", "tx2"},
		Detached: &Detached{Owner: sign.Key{3}}, Verified: []Verified{{State: replica.Equal}, {}},
		Cluster: &Cluster{Size: 2, Members: []Seat{{Rank: 1}}, Epochs: []uint32{1}},
	}
}

// A change of a copy does not reach the job.
func TestClone(t *testing.T) {
	t.Parallel()
	j := full()
	c := j.Clone()
	if !reflect.DeepEqual(j, c) {
		t.Fatalf("got %+v, want %+v", c, j)
	}
	c.Ranks[0].State, c.Lost[0], c.Orders[0], c.Transactions[0] = RankFailed, sign.Key{9}, market.OrderID{9}, "other"
	c.Detached.Owner, c.Verified[0].State, c.Cluster.Size, c.Cluster.Members[0].Rank = sign.Key{9}, replica.Differs, 9, 9
	c.Cluster.Epochs[0] = 9
	if !reflect.DeepEqual(j, full()) {
		t.Errorf("the job became %+v", j)
	}
	if d := (*Detached)(nil).Clone(); d != nil {
		t.Errorf("a job without guardians has %+v", d)
	}
}

// A job is read from its record as it was, with the state of its machine beside it.
func TestRecords(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	want := Record{Job: full(), Work: []byte(`{"version":1}`)}
	if err := Records.Write(t.Context(), st, want.ID, want); err != nil {
		t.Fatal(err)
	}
	got, err := Records.Get(t.Context(), st, want.ID)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A result is certain once the work is over and checked, though money may still move.
func TestResult(t *testing.T) {
	t.Parallel()
	open, ended := []Verified{{State: replica.Replicating}}, []Verified{{State: replica.Equal}}
	for name, c := range map[string]struct {
		job  Job
		want State
		ok   bool
	}{
		"running":   {Job{State: Running}, "", false},
		"settling":  {Job{State: Settling, Outcome: Succeeded}, Succeeded, true},
		"unchecked": {Job{State: Settling, Outcome: Succeeded, Verified: open}, "", false},
		"checked":   {Job{State: Settling, Outcome: Succeeded, Verified: ended}, Succeeded, true},
		"failed":    {Job{State: Settling, Outcome: Failed, Verified: open}, Failed, true},
		"ended":     {Job{State: Stopped}, Stopped, true},
	} {
		if got, ok := c.job.Result(); got != c.want || ok != c.ok {
			t.Errorf("%s: got %q, %v, want %q, %v", name, got, ok, c.want, c.ok)
		}
	}
	if Settling.Past() != "ended" || Failed.Past() != "failed" {
		t.Errorf("%q, %q", Settling.Past(), Failed.Past())
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	j := full()
	j.Spec.Rounds, j.Round, j.Paused, j.Reason = &job.Rounds{Count: 3}, 1, true, "why"
	if got := j.Summary(); got != "running, 1 of 2 ranks done, round 2 of 3, paused, 1 replicated, equal; 1 unchecked: why" {
		t.Errorf("%q", got)
	}
	if got := (Job{State: Queued, Ranks: make([]Rank, 1)}).Summary(); got != "queued, 0 of 1 ranks done" {
		t.Errorf("%q", got)
	}
	if got := j.Until(); got != at.Add(time.Hour) {
		t.Errorf("its time is over at %v", got)
	}
	j.Started = time.Time{}
	if got := j.Until(); !got.IsZero() {
		t.Errorf("before it began, its time is over at %v", got)
	}
}

// Each state of a check has its words, with the providers that a majority differs from.
func TestVerifiedText(t *testing.T) {
	t.Parallel()
	wrong := &replica.Verdict{Wrong: []int{1}, Results: []replica.Committed{{}, {Party: replica.Party{Provider: sign.Key{7}}}}}
	why := &replica.Verdict{Reason: "nobody else"}
	for want, v := range map[string]Verified{
		"unchecked": {}, "being replicated": {State: replica.Replicating}, "not drawn": {State: replica.NotDrawn},
		"replicated, equal": {State: replica.Equal}, "mismatch, undecided: nobody else": {State: replica.Undecided, Verdict: why},
		"not checked: nobody else":                      {State: replica.Unverified, Verdict: why},
		"mismatch: " + sign.Key{7}.Short() + " differs": {State: replica.Differs, Verdict: wrong},
		"mismatch":           {State: replica.Differs},
		"mismatch:  differs": {State: replica.Differs, Verdict: &replica.Verdict{Wrong: []int{-1, 9}}},
	} {
		if got := v.Text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (Job{Replica: &Replica{Job: "j1", Rank: 2}}).VerifyText(); got != "replica of j1, rank 2" {
		t.Errorf("%q", got)
	}
	if got := (Job{Verified: []Verified{{}}}).VerifyText(); got != "unchecked" {
		t.Errorf("%q", got)
	}
}

// The files of a job are its inputs, and those that its rounds and ranks left.
func TestFiles(t *testing.T) {
	t.Parallel()
	j := full()
	j.Spec.Blobs = map[string]job.Blob{"in": {CID: "in"}}
	if !j.Reads("in") || j.Reads("out") || j.Left("in") || !j.Left("out") || !j.Left("log") || !j.Left("carry") {
		t.Errorf("reads in: %v, left out: %v, log: %v, carry: %v", j.Reads("in"), j.Left("out"), j.Left("log"), j.Left("carry"))
	}
	n := 0
	if j.EachLeft(func(string) { n++ }); n != 3 {
		t.Errorf("%d files", n)
	}
	if tx := j.AnchoredIn(); tx != "" {
		t.Errorf("a detached job is anchored in %s", tx)
	}
	if j.Detached = nil; j.AnchoredIn() != "tx1" {
		t.Errorf("anchored in %s", j.AnchoredIn())
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	id, other := NewID(), IDOf(sign.Hash{1, 2, 3})
	if !IsID(id) || !IsID(other) || id == other || IDOf(sign.Hash{1, 2, 3}) != other || NewID() == id {
		t.Errorf("%s, %s", id, other)
	}
	for _, bad := range []string{"", "j", id[1:], strings.ToUpper(id), id + "a", "j../../../../../", "k" + id[1:]} {
		if IsID(bad) {
			t.Errorf("%q is an id", bad)
		}
	}
}

// The members of a cluster have one name, however their job is changed, and a task by their resources.
func TestCluster(t *testing.T) {
	t.Parallel()
	j := Job{ID: "j1", Spec: spec(4), Network: &Span{RTTMicros: 1500}}
	if c, err := NewCluster(j.ID, j.Spec); c != nil || err != nil {
		t.Errorf("a plain job: %+v, %v", c, err)
	}
	j.Spec.Cluster = &job.Cluster{Engine: "mpi", Network: cluster.LAN, Command: []string{"hello"}}
	j.Spec.Runtime, j.Spec.Module = job.RuntimeDocker, ""
	j.Spec.Image = "docker.io/library/python@sha256:" + strings.Repeat("0123456789abcdef", 4)
	j.Spec.Resources.PerUnit.MilliCPU, j.Spec.Resources.PerUnit.MemoryMiB = 500, 1<<31
	var err error
	if j.Cluster, err = NewCluster(j.ID, j.Spec); err != nil || j.Cluster.Size != 4 || j.Cluster.Begun != 4 {
		t.Fatalf("%+v, %v", j.Cluster, err)
	}
	if other, err := NewCluster("j2", j.Spec); err != nil || other.Terms == j.Cluster.Terms {
		t.Errorf("two clusters have the same name: %v", err)
	}
	task := j.Task(1)
	if task.MilliCPU != 1000 || task.MemoryMiB != 1<<32-1 || task.RTT != 1500*time.Microsecond || task.GPUs != 0 || task.Rank != 1 {
		t.Errorf("%+v", task)
	}
	if j.Spec.Resources.Class = "gpu/h100"; j.Task(0).GPUs != 2 {
		t.Errorf("%+v", j.Task(0))
	}
	if j.Engine().Name != "mpi" {
		t.Errorf("engine %+v", j.Engine())
	}
	if j.Spec.Cluster.Engine = "other"; j.Engine().Name != "" {
		t.Errorf("an engine that there is not: %+v", j.Engine())
	}
}
