package clustercmd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// rising is a cluster of three with a reporter, whose lines are in the buffer.
func rising(engine string) (*rise, *bytes.Buffer, record.Job) {
	var out bytes.Buffer
	a := &cli.App{Err: &out}
	j := record.Job{ID: "j1", State: record.Matching, Ranks: make([]record.Rank, 3)}
	j.Spec.Name, j.Spec.Cluster = "sweep", &job.Cluster{Engine: engine}
	for i := range j.Ranks {
		j.Ranks[i].State = record.RankWaiting
	}
	return &rise{p: a.Progress(), last: j, began: time.Now()}, &out, j
}

func wantStage(t *testing.T, r *rise, want string) {
	t.Helper()
	if got := r.stage(); got != want {
		t.Errorf("stage %q, want %q", got, want)
	}
}

// Until all members are leased, the stage counts offers, and then holds. A new order begins anew.
func TestRiseOffers(t *testing.T) {
	t.Parallel()
	r, out, _ := rising("ray")
	one, two := someKey(1).String(), someKey(2).String()
	rank := func(i int) *int { return &i }
	wantStage(t, r, "looking for 3 members: 0 offers, 0 do not fit")
	for _, s := range []record.Step{
		{Kind: record.StepQuoted, Provider: one}, {Kind: record.StepQuoted, Provider: one}, {Kind: record.StepQuoted, Provider: two},
		{Kind: record.StepDeclined}, {Kind: record.StepInfeasible}, {Kind: record.StepBlocked},
	} {
		r.step(s)
	}
	wantStage(t, r, "looking for 3 members: 2 offers, 3 do not fit")
	r.step(record.Step{Kind: record.StepHeld, Rank: rank(1)})
	r.step(record.Step{Kind: record.StepHeld, Rank: rank(1)})
	r.step(record.Step{Kind: record.StepHeld})
	wantStage(t, r, "1 of 3 members held, 0 leases signed")
	r.step(record.Step{Kind: record.StepOrdered})
	wantStage(t, r, "looking for 3 members: 0 offers, 0 do not fit")
	if out.Len() > 0 {
		t.Errorf("lines that stay: %q", out)
	}
}

// Each stage that is reached stays as one line, however often the job is reported.
func TestRiseLines(t *testing.T) {
	t.Parallel()
	r, out, j := rising("ray")
	for i := range 3 {
		r.step(record.Step{Kind: record.StepQuoted, Provider: someKey(byte(i + 1)).String()})
		r.step(record.Step{Kind: record.StepHeld, Rank: &i})
	}
	j.State = record.Running
	for i := range j.Ranks {
		j.Ranks[i].State, j.Ranks[i].Provider = record.RankRunning, someKey(byte(i+1))
		j.Ranks[i].Live = record.Live{Phase: "pulling", Pulled: 3, PullTotal: 4}
	}
	j.Ranks[0].Live = record.Live{Phase: "running"}
	j.Ranks[2].Live.Pulled = 9 // more than all of it counts as all
	r.change(j)
	r.change(j)
	wantStage(t, r, "1 of 3 members have their image, 87 % of the rest")
	for i := range j.Ranks {
		j.Ranks[i].Live = record.Live{Phase: "running", Ways: &record.Ways{Direct: 1, Cut: 1}}
	}
	r.change(j)
	wantStage(t, r, "joining the members: 2 direct, 2 not yet")
	for i := range j.Ranks {
		j.Ranks[i].Live.Ways = &record.Ways{Direct: 1, Relayed: 1}
	}
	r.change(j)
	r.change(j)
	wantStage(t, r, "waiting for ray")
	r.step(record.Step{Kind: record.StepLost, Provider: someKey(2).String(), Detail: "it was\x1b[2J lost"})
	r.step(record.Step{Kind: record.StepScaled, Detail: "to 4 members"})
	r.step(record.Step{Kind: record.StepAsked, Detail: "not shown"})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{"3 providers answered, 3 members held", "3 leases signed, " + someKey(1).Short() + " is the head",
		"all members have the image and the program", "every member reaches every other one: 2 direct, 2 relayed"}
	if len(lines) != len(want)+2 || strings.Join(lines[:len(want)], "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", lines, want)
	}
	if text := out.String(); !strings.Contains(text, "lost") || !strings.Contains(text, "to 4 members") || strings.Contains(text, "not shown") ||
		strings.Contains(text, "\x1b") {
		t.Errorf("steps: %q", text)
	}
	j.State, j.Outcome = record.Settling, record.Failed
	r.change(j)
	wantStage(t, r, "settling, then failed")
}

// A member that has not reported all of its ways does not count as one without cut ways.
func TestWaysTold(t *testing.T) {
	t.Parallel()
	_, _, j := rising("none")
	if sum, all := waysTold(j); all || sum != (record.Ways{}) {
		t.Errorf("without reports: %+v, %t", sum, all)
	}
	for i := range j.Ranks {
		j.Ranks[i].Live.Ways = &record.Ways{Direct: 2}
	}
	if sum, all := waysTold(j); !all || waysText(sum) != "3 direct" {
		t.Errorf("all: %+v, %t", sum, all)
	}
	j.Ranks[2].Live.Ways = &record.Ways{Direct: 1}
	if sum, all := waysTold(j); all || waysText(sum) != "2 direct" {
		t.Errorf("one way is missing: %+v, %t", sum, all)
	}
	if got := waysText(record.Ways{}); got != "" {
		t.Errorf("no ways: %q", got)
	}
}

// A cluster has its own next commands, by its engine.
func TestNextSteps(t *testing.T) {
	t.Parallel()
	for engine, want := range map[string]string{"ray": "ray job submit ", "dask": "Client(\"tcp://127.0.0.1:8786\")", "none": ""} {
		_, _, j := rising(engine)
		text := strings.Join(nextSteps(j), "\n")
		if !strings.Contains(text, want) || strings.Contains(text, "port-forward") != (want != "") ||
			!strings.Contains(text, "starling cluster exec -it sweep -- bash") || !strings.HasSuffix(text, "it is paid for until then") {
			t.Errorf("%s: %s", engine, text)
		}
	}
}

// A budget is the network's tokens. It is sent with the size, and the cluster keeps both where the peer refuses.
func TestClusterScaleBudget(t *testing.T) {
	t.Parallel()
	f := newFakeBuyer(t)
	f.add(t, "jone", sweepFile)
	f.change("jone", up)
	f.cli(t, "cluster", "scale", "sweep", "4", "--budget", "12.5", "-o", "json").Want(t, cli.ExitOK, `"count": 4`)
	for _, budget := range []string{"much", "-1", "0.0000001", ""} {
		f.cli(t, "cluster", "scale", "sweep", "5", "--budget="+budget).Want(t, cli.ExitUsage, `^starling: --budget`)
	}
	f.refuse = record.ErrRefused
	f.cli(t, "cluster", "scale", "sweep", "6", "--budget", "1").Want(t, cli.ExitUsage, `^starling: scaling cluster sweep: `)
	if j, err := f.Job("jone"); err != nil || len(j.Ranks) != 4 || j.Spec.Payment.Budget != 12_500_000 {
		t.Errorf("%d members, budget %d, %v", len(j.Ranks), j.Spec.Payment.Budget, err)
	}
	f.cli(t, "cluster", "scale", "sweep").Want(t, cli.ExitUsage, `scale needs 2 arguments, not 1`)
}
