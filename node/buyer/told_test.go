package buyer

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
)

// What a guardian says of a job is taken for no more than the job could have come to.
func TestToldByAnotherSupervisor(t *testing.T) {
	t.Parallel()
	const file = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
	spec := job.Job{
		Name: "train", Runtime: job.RuntimeWasm, Module: "m.wasm", Blobs: map[string]job.Blob{"m.wasm": {CID: file}}, Count: 2, Guardians: 3,
		Resources: job.Resources{Class: "cpu", Units: 1}, Payment: job.Payment{MaxPrice: 1000, Budget: 1000},
		Timeouts: job.Timeouts{Queue: time.Minute, Run: time.Hour},
	}
	base := Job{ID: newID(), Spec: spec, State: Running, Started: time.Now(), Ranks: make([]Rank, 2), Round: 0,
		Detached: &Detached{Terms: sign.Hash{1}, Epoch: 2, Escrow: &Place{}}}
	base.Ranks[0] = Rank{State: RankRunning, Epoch: 4}
	base.Ranks[1] = Rank{State: RankDone, Epoch: 1, Outputs: []Output{{Path: "/out", Blob: Blob{CID: file}}}}
	for name, c := range map[string]struct {
		change func(*Job)
		ok     func(Job) bool // nil: refused
	}{
		"another job":        {change: func(j *Job) { j.Detached.Terms[0]++ }},
		"no guardians":       {change: func(j *Job) { j.Detached = nil }},
		"more ranks":         {change: func(j *Job) { j.Ranks = append(j.Ranks, Rank{}) }},
		"a state of its own": {change: func(j *Job) { j.State = "stolen" }},
		"no outcome":         {change: func(j *Job) { j.State, j.Outcome = Settling, Running }},
		"no escrow":          {change: func(j *Job) { j.Detached.Escrow = nil }},
		"rounds it lacks":    {change: func(j *Job) { j.Round = 2 }},
		"a round before":     {change: func(j *Job) { j.Round = -1 }},
		"no such rank state": {change: func(j *Job) { j.Ranks[0].State = "x" }},
		"the last epoch":     {change: func(j *Job) { j.Ranks[0].Epoch = math.MaxUint32 }},
		"restarts":           {change: func(j *Job) { j.Ranks[0].Restarts = math.MinInt }},
		"a file of no name":  {change: func(j *Job) { j.Ranks[0].Outputs = []Output{{Path: "/out", Blob: Blob{CID: "../.."}}} }},
		"a negative file":    {change: func(j *Job) { j.Ranks[0].Outputs = []Output{{Path: "/out", Blob: Blob{CID: file, Size: -1}}} }},
		"a path elsewhere":   {change: func(j *Job) { j.Ranks[0].Outputs = []Output{{Path: "../out", Blob: Blob{CID: file}}} }},
		"too many files":     {change: func(j *Job) { j.Ranks[0].Outputs = make([]Output, maxOutputs+1) }},
		"an epoch before":    {func(j *Job) { j.Ranks[0].Epoch = 1 }, func(j Job) bool { return j.Ranks[0].Epoch == 4 }},
		"what was done undone": {func(j *Job) { j.Ranks[1] = Rank{State: RankWaiting, Epoch: 9} }, func(j Job) bool {
			return j.Ranks[1].State == RankDone && len(j.Ranks[1].Outputs) == 1 && j.Ranks[1].Epoch == 9
		}},
		"another program, and somebody to be told": {func(j *Job) {
			j.Spec.Args, j.Spec.Webhooks = []string{"steal"}, []job.Webhook{{URL: "http://169.254.169.254/"}}
		}, func(j Job) bool { return len(j.Spec.Args) == 0 && len(j.Spec.Webhooks) == 0 }},
		"a log of no name": {func(j *Job) { j.Ranks[0].Log = &Blob{CID: "x"} }, func(j Job) bool { return j.Ranks[0].Log == nil }},
	} {
		theirs := base.clone()
		theirs.Detached.Epoch = 3
		theirs.Ranks[1].Outputs = slices.Clone(theirs.Ranks[1].Outputs)
		c.change(&theirs)
		raw, err := json.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		got, news, err := acceptStanding(base, true, raw)
		if c.ok == nil && (err == nil || news) || c.ok != nil && (err != nil || !news || !c.ok(got)) {
			t.Errorf("%s: %v, %v: %+v", name, err, news, got)
		}
	}
	raw, _ := json.Marshal(base)
	if _, news, err := acceptStanding(base, true, raw); news || err != nil {
		t.Errorf("what it said itself is news to it: %v", err)
	}
	if _, _, err := acceptStanding(base, true, []byte("{")); err == nil {
		t.Error("no JSON")
	}
}
