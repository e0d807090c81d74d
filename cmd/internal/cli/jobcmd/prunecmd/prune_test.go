package prunecmd

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job/jobfile"
)

func TestPruneSummary(t *testing.T) {
	t.Parallel()
	two := []prunedJob{
		{RemovedJob: api.RemovedJob{LogBytes: 1 << 20, OutputBytes: 1 << 19}},
		{RemovedJob: api.RemovedJob{OutputBytes: 1 << 20}}, {Kept: "money of it is under way"},
	}
	for _, c := range []struct {
		p    pruned
		want string
	}{
		{pruned{}, "no job ended that long ago"},
		{pruned{DryRun: true}, "no job ended that long ago"},
		{pruned{Jobs: two}, "removed 2 jobs, 2.5 MiB"},
		{pruned{Jobs: two[:1]}, "removed 1 job, 1.5 MiB"},
		{pruned{Jobs: two[2:]}, "removed 0 jobs, 0 B"},
		{pruned{Jobs: two[:2], DryRun: true}, "would remove 2 jobs"},
	} {
		if got := c.p.summary(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

const jobFile = "{apiVersion: v1, kind: Job, metadata: {name: words}, spec: {module: app.wasm, payment: {maxPrice: 0.05, budget: 1}}}"

// Prune removes old jobs, shows a needed one with the reason, and leaves those of today alone.
func TestPrune(t *testing.T) {
	t.Parallel()
	spec, err := jobfile.Parse([]byte(jobFile), jobfile.Token{Decimals: 6})
	if err != nil {
		t.Fatal(err)
	}
	old := func(id string, since time.Duration) record.Job {
		return record.Job{ID: id, Spec: spec, State: record.Failed, Ended: time.Now().Add(-since)}
	}
	job := func(a *cli.App) *cobra.Command { return cli.Noun(cli.GroupJobs, &cobra.Command{Use: "job"}, New(a)) }
	p := clitest.NewAnswering(t, []func(*cli.App) *cobra.Command{job}, clitest.Network, clitest.Answers{
		"GET /v1/jobs": record.Page{Jobs: []record.Job{
			old("jyoung", time.Hour), old("jold", 8*24*time.Hour), old("jneeded", 9*24*time.Hour),
		}},
		"DELETE /v1/jobs/jold/record": api.RemovedJob{LogBytes: 1 << 20, OutputBytes: 3 << 20},
		"DELETE /v1/jobs/jneeded/record": &api.Error{
			Status: http.StatusConflict, Code: api.CodeNeeded, Message: "money of it is under way",
		},
	})
	p.CLI(t, "job", "prune", "--dry-run").Want(t, cli.ExitOK, `^jold +words +failed +\S+ \S+ +- +- +- *$`, `^would remove 2 jobs$`)
	if asked := p.Asked(); len(asked) != 1 {
		t.Errorf("a dry run asked for %q", asked)
	}
	p.CLI(t, "job", "prune").Want(t, cli.ExitOK, `^jold +words +failed +\S+ \S+ +1\.0 MiB +3\.0 MiB +- *$`,
		`^jneeded +words +failed +\S+ \S+ +- +- +money of it is under way *$`, `^removed 1 job, 4\.0 MiB$`)
	want := []string{"GET /v1/jobs?limit=1000&state=ended", "DELETE /v1/jobs/jold/record", "DELETE /v1/jobs/jneeded/record"}
	if asked := p.Asked(); !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	p.CLI(t, "job", "prune", "--older-than", "30d").Want(t, cli.ExitOK, `^no job ended that long ago$`)
	for _, age := range []string{"1h", "-7d", "week", ""} {
		p.CLI(t, "job", "prune", "--older-than", age).Want(t, cli.ExitUsage, "want 24h or more, such as 36h or 30d")
	}
}
