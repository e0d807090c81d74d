package buyer

import (
	"strings"
	"testing"

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
	w, err := workload(j, 1)
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
	for name, change := range map[string]func(*job.Job){
		"a module without a digest": func(s *job.Job) { s.Blobs = map[string]job.Blob{"m.wasm": {CID: "x"}} },
		"an input that is missing":  func(s *job.Job) { s.Inputs = []job.Input{{Source: "other", Path: "/in"}} },
		"an input without a digest": func(s *job.Job) { s.Blobs = map[string]job.Blob{"m.wasm": s.Blobs["m.wasm"], "in": {}} },
	} {
		bad := j
		change(&bad.Spec)
		if _, err := workload(bad, 0); err == nil {
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
