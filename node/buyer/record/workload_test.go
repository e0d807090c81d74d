package record

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
)

// A rank's program gets the job's environment, its own number, its inputs, and the carry of the round before.
func TestWorkload(t *testing.T) {
	t.Parallel()
	j := Job{ID: "j1", Round: 1, Carry: &Blob{CID: otherFile, Size: 3, Tree: true}, Ranks: make([]Rank, 2)}
	j.Spec = job.Job{
		Runtime: job.RuntimeWasm, Module: "m.wasm", Count: 2, Env: map[string]string{"A": "1", EnvJob: "mine"},
		Blobs:  map[string]job.Blob{"m.wasm": {CID: otherFile, Size: 9}, "in": {CID: otherFile, Size: 2}},
		Inputs: []job.Input{{Source: "in", Path: "/in"}}, Outputs: []job.Output{{Path: "/out"}},
		Rounds: &job.Rounds{Count: 3, Carry: "/carry"},
	}
	w, err := Workload(j, 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"A": "1", EnvJob: "j1", EnvRank: "1", EnvCount: "2", EnvRound: "1", EnvRounds: "3",
	} {
		if w.Env[name] != want {
			t.Errorf("%s: got %q, want %q", name, w.Env[name], want)
		}
	}
	var paths []string
	for _, in := range w.Inputs {
		paths = append(paths, in.Path)
	}
	if got := strings.Join(append(paths, w.Outputs...), " "); got != "/in /carry /out" || w.Module.Size != 9 {
		t.Errorf("inputs and outputs are %s, the module has %d bytes", got, w.Module.Size)
	}
	container := j
	container.Spec.ShmMiB = 64
	if shm, err := Workload(container, 1); err != nil || shm.ShmMib != 64 || w.ShmMib != 0 {
		t.Errorf("/dev/shm of %d MiB, without a size %d, %v", shm.ShmMib, w.ShmMib, err)
	}
	if w.Scratch != "" || w.Env[EnvScratch] != "" {
		t.Errorf("there is a scratch directory %q, %q", w.Scratch, w.Env[EnvScratch])
	}
	for own, want := range map[string]string{"": job.ScratchPath, "/out/tmp": "/out/tmp"} {
		scratch := j
		scratch.Spec.ScratchMiB, scratch.Spec.Env = 50<<10, map[string]string{"TMPDIR": own}
		if own == "" {
			scratch.Spec.Env = nil
		}
		w, err := Workload(scratch, 1)
		if err != nil || w.Scratch != job.ScratchPath || w.Env[EnvScratch] != job.ScratchPath || w.Env["TMPDIR"] != want {
			t.Errorf("scratch at %q, %q, for temporary files %q, %v; want %q", w.Scratch, w.Env[EnvScratch], w.Env["TMPDIR"], err, want)
		}
	}
	for name, change := range map[string]func(*job.Job){
		"a module without a digest": func(s *job.Job) { s.Blobs = map[string]job.Blob{"m.wasm": {CID: "x"}} },
		"an input that is missing":  func(s *job.Job) { s.Inputs = []job.Input{{Source: "other", Path: "/in"}} },
		"an input without a digest": func(s *job.Job) { s.Blobs = map[string]job.Blob{"m.wasm": s.Blobs["m.wasm"], "in": {}} },
	} {
		bad := j
		change(&bad.Spec)
		if _, err := Workload(bad, 0); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}

// A health check keeps its times and one of three forms on the wire.
func TestHealthOnTheWire(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]*job.Health{
		"command": {Command: []string{"true"}}, "tcp": {TCP: 80}, "http": {HTTP: &job.HTTPGet{Port: 80, Path: "/ok"}},
	} {
		h.Interval, h.Retries = 2_000_000_000, 3
		got := pbHealth(h)
		if got.IntervalMillis != 2000 || got.Retries != 3 {
			t.Errorf("%s: %v", name, got)
		}
		_, command := got.Check.(*nodepb.HealthCheck_Command)
		_, tcp := got.Check.(*nodepb.HealthCheck_TcpPort)
		_, http := got.Check.(*nodepb.HealthCheck_Http)
		if command != (name == "command") || tcp != (name == "tcp") || http != (name == "http") {
			t.Errorf("%s: %T", name, got.Check)
		}
	}
	if pbHealth(nil) != nil {
		t.Error("a job without a check has one")
	}
}

// The result of a rank whose result is checked depends on nothing but itself, and a replica's workload is the same.
func TestReplicaWorkload(t *testing.T) {
	t.Parallel()
	j := Job{ID: "j1", Ranks: make([]Rank, 3), Spec: spec(3)}
	j.Spec.Verify, j.Spec.Webhooks = job.VerifyReplicate, []job.Webhook{{}}
	j.Spec.Inputs = []job.Input{{Source: "in/{rank}", Path: "/in"}}
	j.Spec.Blobs = map[string]job.Blob{"m.wasm": {CID: otherFile}, "in/0": {CID: otherFile, Size: 1}, "in/2": {CID: otherFile, Size: 3}}
	want, err := Workload(j, 2)
	if err != nil || want.Seed == 0 || want.Env[EnvRank] != "2" || want.Env[EnvCount] != "3" {
		t.Fatalf("%v, %v", want, err)
	}
	again := Job{ID: "j2", Ranks: make([]Rank, 1), Replica: &Replica{Job: "j1", Rank: 2, Count: 3}}
	if again.Spec, err = ReplicaSpec(j, 2); err != nil {
		t.Fatal(err)
	}
	if s := again.Spec; s.Count != 1 || len(s.Webhooks) != 0 || len(s.Blobs) != 2 || s.Payment.Budget > j.Spec.Payment.Budget {
		t.Errorf("spec %+v", s)
	}
	if got, err := Workload(again, 0); err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if j.Spec.Inputs[0].Source != "in/{rank}" {
		t.Error("the job itself was changed")
	}
	if _, err := ReplicaSpec(j, 1); err == nil {
		t.Error("an input that is not there is no error")
	}
}

// A rank of a cluster runs the program of its engine, with the engine's environment where the job has none of its own.
func TestClusterWorkload(t *testing.T) {
	t.Parallel()
	j := Job{ID: "j1", Ranks: make([]Rank, 2), Spec: spec(2), Cluster: &Cluster{Size: 2, Begun: 2}}
	j.Spec.Module, j.Spec.Cluster = "", &job.Cluster{Engine: "ray"}
	head, err := Workload(j, 0)
	if err != nil || len(head.Entrypoint)+len(head.Args) == 0 || head.Health == nil || head.Health.Retries != 30 {
		t.Fatalf("%v, %v", head, err)
	}
	for name := range head.Env {
		if !strings.HasPrefix(name, "STARLING_") {
			j.Spec.Env = map[string]string{name: "mine"}
			break
		}
	}
	own, err := Workload(j, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name := range j.Spec.Env {
		if own.Env[name] != "mine" {
			t.Errorf("%s: %q", name, own.Env[name])
		}
	}
}

// The reduce program reads the output of every rank, its own inputs, and the carry of the round before.
func TestReduceWorkload(t *testing.T) {
	t.Parallel()
	j := Job{ID: "j1", Spec: spec(2), Round: 1, Carry: &Blob{CID: otherFile}, Ranks: make([]Rank, 2)}
	j.Spec.Rounds = &job.Rounds{Count: 3, Carry: "/carry", Reduce: &job.Reduce{Module: "r.wasm", Inputs: []job.Input{{Source: "in", Path: "/more"}}}}
	j.Spec.Blobs = map[string]job.Blob{"in": {CID: otherFile}}
	if _, err := ReduceWorkload(j); err == nil {
		t.Error("a rank without output is no error")
	}
	for i := range j.Ranks {
		j.Ranks[i].Outputs = []Output{{"/out", Blob{CID: otherFile, Tree: true}}}
	}
	w, err := ReduceWorkload(j)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, in := range w.Inputs {
		paths = append(paths, in.Path)
	}
	if got := strings.Join(paths, " "); got != "/in/0 /in/1 /more /carry" || w.Env[EnvRound] != "1" || w.Outputs[0] != ReduceOut {
		t.Errorf("inputs %s, %v", got, w)
	}
	j.Spec.Blobs = nil
	if _, err := ReduceWorkload(j); err == nil {
		t.Error("an input that was not uploaded is no error")
	}
}
