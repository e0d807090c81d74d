package jobcmd

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
)

var commands = []func(*cli.App) *cobra.Command{NewPs, NewStatus, NewWhy, NewQuote, NewLogs, NewStop, NewWait, NewGet, newRun,
	NewSubmit, func(a *cli.App) *cobra.Command { return NewJob(a) }}

// newRun is the command without terminals.
func newRun(a *cli.App) *cobra.Command { return NewRun(a, nil) }

func answering(t *testing.T, all clitest.Answers) *clitest.Answering {
	t.Helper()
	return clitest.NewAnswering(t, commands, clitest.Network, all)
}

const jobFile = `apiVersion: v1
kind: Job
metadata: {name: words}
spec:
  module: app.wasm
  count: 2
  outputs: [{src: /out}]
  timeouts: {queue: 2m, run: 1h}
  payment: {maxPrice: 0.05, budget: 0.1}
`

// jobWith is a job of two ranks that was submitted an hour ago, with changes.
func jobWith(t *testing.T, change func(*record.Job)) record.Job {
	t.Helper()
	spec, err := jobfile.Parse([]byte(jobFile), jobfile.Token{Decimals: 6})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().Add(-time.Hour - time.Second).Truncate(time.Second)
	j := record.Job{ID: "jaaaaaaaaaaaa", Spec: spec, State: record.Running, Created: began, Started: began,
		Ranks: []record.Rank{{State: record.RankRunning}, {State: record.RankDone}}}
	if change != nil {
		change(&j)
	}
	return j
}

// ended is a job that ended half a minute after its begin.
func ended(state record.State, code record.Code, reason string) func(*record.Job) {
	return func(j *record.Job) {
		j.State, j.Code, j.Reason, j.Ended = state, code, reason, j.Started.Add(30*time.Second)
	}
}

// The list has a line for each job, of every page, also for one with control characters.
func TestPs(t *testing.T) {
	t.Parallel()
	first := jobWith(t, func(j *record.Job) { j.Paused, j.Ranks[0].Units.Simulated = true, true })
	second := jobWith(t, func(j *record.Job) {
		j.ID, j.State, j.Owed, j.Reason = "jaaaaaaaaaabb", record.Settling, 1_500_000, "a\x1b[31m\nb"+strings.Repeat("c", 80)
	})
	p := answering(t, clitest.Answers{"GET /v1/jobs": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := record.Page{Jobs: []record.Job{first}, Next: "next"}
		if r.URL.Query().Get("after") == "next" {
			page = record.Page{Jobs: []record.Job{second}}
		}
		_ = json.NewEncoder(w).Encode(page)
	})})
	p.CLI(t, "ps").Want(t, cli.ExitOK, `^ID +NAME +STATE +RANKS +ROUND +AGE +LEFT +COST +CHECKED +REASON$`,
		`^jaaaaaaaaaaa +words +paused +1/2 \(simulated\) +- +60m +0s +- +- *$`,
		`^jaaaaaaaaaab +words +settling +1/2 +- +60m +- +1\.50 STAR +- +a \[31m bc{51}…$`)
	want := []string{"GET /v1/jobs?limit=1000&state=open", "GET /v1/jobs?after=next&limit=1000&state=open"}
	if asked := p.Asked(); !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	if r := p.CLI(t, "ps", "-a", "-q").Want(t, cli.ExitOK); r.Out != "jaaaaaaaaaaaa\njaaaaaaaaaabb\n" || strings.Contains(p.Asked()[0], "state=") {
		t.Errorf("got %q", r.Out)
	}
	none := answering(t, clitest.Answers{"GET /v1/jobs": record.Page{Jobs: []record.Job{}}})
	none.CLI(t, "ps").Want(t, cli.ExitOK, "^no job is open; `starling ps -a` lists ended jobs too$")
	none.CLI(t, "ps", "-o", "json").Want(t, cli.ExitOK, `^\[\]$`)
	circle := answering(t, clitest.Answers{"GET /v1/jobs": record.Page{Next: "same"}})
	circle.CLI(t, "ps").Want(t, cli.ExitFailed, `^starling: listing jobs: the peer gives the same page again$`)
}

// The history is asked for as the flags say, one page, and says how to go on.
func TestHistory(t *testing.T) {
	t.Parallel()
	done := jobWith(t, func(j *record.Job) {
		ended(record.Failed, record.CodeLost, "the provider was lost")(j)
		j.Created = time.Date(2026, 3, 1, 23, 59, 0, 0, time.FixedZone("east", 3600))
		j.Key, j.Owed, j.Paid, j.Lamports.Fees = "ci", 2_000_000, 1_000_000, 5000
	})
	p := answering(t, clitest.Answers{"GET /v1/jobs": record.Page{Jobs: []record.Job{done}, Next: "x.y"}})
	p.CLI(t, "job", "history", "--since", "2026-03-01", "--state", "failed", "--name", "a b&c", "--limit", "1", "--after", "w").Want(t,
		cli.ExitOK, `^jaaaaaaa +words +failed +2026-03-01 22:59 +30s +2 +2\.00 STAR +1\.00 STAR +0\.000005 +ci +the provider was lost$`,
		`^there are more: --after x\.y$`)
	want := []string{"GET /v1/jobs?after=w&limit=1&name=a+b%26c&since=2026-03-01T00%3A00%3A00Z&state=failed"}
	if asked := p.Asked(); !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	p.CLI(t, "job", "history", "-o", "json").Want(t, cli.ExitOK, `"next": "x\.y"`).Not(t, `there are more`)
	p.Asked()
	for _, args := range [][]string{{"--limit", "0"}, {"--limit", "-1"}, {"--since", "soon"}, {"now"}} {
		p.CLI(t, append([]string{"job", "history"}, args...)...).Want(t, cli.ExitUsage, `^starling: `)
	}
	if asked := p.Asked(); len(asked) > 0 {
		t.Errorf("asked for %q", asked)
	}
}

// A rank's state has its provider's report, which may say anything.
func TestRankState(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]record.Rank{
		"waiting":            {State: record.RankWaiting, Live: record.Live{Phase: "paused", Health: "healthy"}},
		"running":            {State: record.RankRunning, Live: record.Live{Phase: "nonsense"}},
		"running, unhealthy": {State: record.RankRunning, Live: record.Live{Phase: "running", Health: "unhealthy"}},
		"paused, healthy":    {State: record.RankRunning, Live: record.Live{Phase: "paused", Health: "healthy"}},
		"pulling":            {State: record.RankRunning, Live: record.Live{Phase: "pulling", Pulled: 7}},
		"pulling 33%":        {State: record.RankRunning, Live: record.Live{Phase: "pulling", Pulled: 1, PullTotal: 3}},
		"pulling 100%":       {State: record.RankRunning, Live: record.Live{Phase: "pulling", Pulled: 1 << 63, PullTotal: 1 << 63}},
		"pulling 50%":        {State: record.RankRunning, Live: record.Live{Phase: "pulling", Pulled: 1 << 62, PullTotal: 1 << 63}},
		"pulling 99%":        {State: record.RankRunning, Live: record.Live{Phase: "pulling", Pulled: 1<<64 - 2, PullTotal: 1<<64 - 1}},
		"leased":             {State: record.RankLeased, After: time.Now().Add(-time.Hour)},
		"done":               {State: record.RankDone, Live: record.Live{Phase: "pulling"}},
	} {
		if got := RankState(r); got != want {
			t.Errorf("%+v: got %q, want %q", r.Live, got, want)
		}
	}
	later := record.Rank{State: record.RankLeased, After: time.Now().Add(time.Hour)}
	if got := RankState(later); !strings.HasPrefix(got, "leased, starts again in ") {
		t.Errorf("got %q", got)
	}
}

// The status of a job that runs counts its leases; of one that ended, the sum in the journal counts.
func TestStatus(t *testing.T) {
	t.Parallel()
	provider, escrow := sign.Key{3}, sign.Key{9}
	j := jobWith(t, func(j *record.Job) {
		j.Paused, j.Stopping, j.Owed, j.Paid, j.Key, j.Rerun = true, true, 9, 250_000, "ci", "jold"
		j.Reason, j.Warning, j.Lamports = "it\x1b waits", "small budget", record.Lamports{Fees: 5000, Rent: 1_000_000}
		j.Escrows = []record.Escrow{{Address: escrow, Deposited: 1_000_000, Paid: 250_000, Fees: 5000, Waiting: "for the chain"},
			{Address: escrow, Closed: true, Waiting: "for nothing"}}
		j.Ranks[0] = record.Rank{State: record.RankRunning, Provider: provider, Lease: market.LeaseID{5}, Route: "direct", Restarts: 2, Retries: 1,
			Units: record.Units{Class: "gpu/l4", Model: "NVIDIA L4", Simulated: true}, Exit: 77, Unextended: "no room", Reason: "hidden"}
		j.Ranks[1].Exit, j.Ranks[1].Units = 3, record.Units{Class: "cpu", Model: "EPYC"}
	})
	leases := []record.LeaseAccount{{Owed: 1_000_000}, {Owed: 500_000}}
	p := answering(t, clitest.Answers{"GET /v1/jobs/{id}": j, "GET /v1/jobs/{id}/receipts": leases})
	p.CLI(t, "status", "jaaa").Want(t, cli.ExitOK, `^job +jaaaaaaaaaaaa$`, `^key +ci$`, `^repeats +jold$`,
		"^state +running, paused; its units are held and paid for, `starling job resume jaaaaaaaaaaaa` resumes it, stopping$",
		`^reason +it  waits$`, `^warning +small budget$`, `^created +60m ago$`, `^running for +1h0m\d+(\.\d)?s, at most 1h0m0s, and 2s to stop$`,
		`^cost +1\.50 STAR, budget 0\.10 STAR$`, `^paid +0\.25 STAR$`, `^SOL +about 0\.000005 for fees, 0\.001 for rent until its escrow is closed$`,
		`^escrow +`+escrow.String()+`: 1\.00 STAR deposited, 0\.25 STAR paid \(0\.005 STAR of it fees\), 0\.00 STAR back; for the chain$`,
		`^escrow .* back, closed$`,
		`^0 +running +`+provider.Short()+` +direct +`+market.LeaseID{5}.Short()+` +2 +1 +- +gpu/l4 NVIDIA L4 \(simulated\) +not extended: no room$`,
		`^1 +done +- +- +- +0 +0 +3 +cpu *$`)
	if asked := p.Asked(); !slices.Equal(asked, []string{"GET /v1/jobs/jaaa", "GET /v1/jobs/jaaaaaaaaaaaa/receipts"}) {
		t.Errorf("asked for %q", asked)
	}
	over := jobWith(t, func(j *record.Job) {
		ended(record.Failed, record.CodeProgram, "exit 3")(j)
		j.Owed, j.Paid, j.Escrows = 2_000_000, 1_000_000, []record.Escrow{{}}
	})
	p = answering(t, clitest.Answers{"GET /v1/jobs/{id}": over})
	p.CLI(t, "status", "j").Want(t, cli.ExitOK, `^state +failed$`, `^ran for +30s, `, `^cost +2\.00 STAR`,
		`^paid +1\.00 STAR, the unclaimed rest was refunded$`).Not(t, `^until`, `stopping`)
	over.Finished = over.Started.Add(10 * time.Second) // and was paid 20 s later
	p = answering(t, clitest.Answers{"GET /v1/jobs/{id}": over})
	p.CLI(t, "status", "j").Want(t, cli.ExitOK, `^ran for +10s, at most 1h0m0s$`)
	p.CLI(t, "status").Want(t, cli.ExitUsage, `status needs an argument`)
	p.CLI(t, "status", "a/../b").Want(t, cli.ExitOK)
	if asked := p.Asked(); asked[len(asked)-1] != "GET /v1/jobs/a%2F..%2Fb" {
		t.Errorf("asked for %q: an id is not one part of the path", asked)
	}
}

// The trace: of each order one line a provider, quotes first, and all ways on which an answer came.
func TestWhy(t *testing.T) {
	t.Parallel()
	a, b, c, d := sign.Key{1}.String(), sign.Key{2}.String(), sign.Key{3}.String(), sign.Key{4}.String()
	j := jobWith(t, nil)
	at := func(s time.Duration, step record.Step) record.Step { step.At = j.Created.Add(s); return step }
	one := 1
	steps := []record.Step{
		at(0, record.Step{Kind: record.StepOrdered, Detail: "order 1 for 2 ranks"}),
		at(0, record.Step{Kind: record.StepAsked, Provider: a}), at(0, record.Step{Kind: record.StepAsked, Provider: b}),
		at(0, record.Step{Kind: record.StepDeclined, Provider: c, Detail: "full\x1b[2J\nPROVIDER"}),
		at(0, record.Step{Kind: record.StepQuoted, Provider: a, Price: "0.04", Route: "direct", Took: 5 * time.Millisecond}),
		at(0, record.Step{Kind: record.StepQuoted, Provider: a, Price: "0.04", Route: "gossip", Took: 70 * time.Millisecond}),
		at(0, record.Step{Kind: record.StepQuoted, Provider: d, Price: "0.05", Route: "gossip"}),
		at(1500*time.Millisecond, record.Step{Kind: record.StepLeased, Provider: a, Rank: &one}),
		at(61*time.Second, record.Step{Kind: record.StepOrdered, Detail: "order 2 for 1 rank"}),
		at(61*time.Second, record.Step{Kind: record.StepSilent, Provider: "somebody", Detail: "no answer in time"}),
	}
	p := answering(t, clitest.Answers{"GET /v1/jobs/{id}": j, "GET /v1/jobs/{id}/why": steps})
	r := p.CLI(t, "why", "jaaa").Want(t, cli.ExitOK, `^job jaaaaaaaaaaaa: running, 1 of 2 ranks done$`, `^\+0\.000s  order 1 for 2 ranks$`,
		`^`+sign.Key{1}.Short()+` +quoted +0\.04 +direct in 5ms, gossip in 70ms *$`, `^`+sign.Key{4}.Short()+` +quoted +0\.05 +gossip *$`,
		`^`+sign.Key{3}.Short()+` +declined +- +- +full \[2J PROVIDER$`,
		`^`+sign.Key{2}.Short()+` +asked +- +- +no answer before there were enough quotes$`,
		`^\+1\.500s +leased +rank 1 +`+sign.Key{1}.Short(), `^\+61\.000s  order 2 for 1 rank$`, `^somebody +silent +- +- +no answer in time$`)
	var order []int
	for _, k := range []sign.Key{{1}, {4}, {3}, {2}} {
		order = append(order, strings.Index(r.Out, "\n"+k.Short()))
	}
	if !slices.IsSorted(order) {
		t.Errorf("quotes do not come first:\n%s", r.Out)
	}
}

// frame is a part of a log.
func frame(stream byte, text string) string {
	h := make([]byte, ranklog.FrameHeader)
	h[0] = stream
	binary.BigEndian.PutUint32(h[4:], uint32(len(text)))
	return string(h) + text
}

// logsOf answers with the log of a rank.
func logsOf(ranks ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("rank"), &n)
		_, _ = w.Write([]byte(ranks[n]))
	}
}

// Of several ranks each line has its rank, on its own stream; one rank is written byte for byte.
func TestLogs(t *testing.T) {
	t.Parallel()
	j := jobWith(t, nil)
	raw := "one\nt\x1b[31mwo\x00"
	p := answering(t, clitest.Answers{"GET /v1/jobs/{id}": j, "GET /v1/jobs/{id}/logs": logsOf(
		frame(ranklog.StreamStdout, "a")+frame(ranklog.StreamStderr, "oh\n")+frame(ranklog.StreamStdout, "b\nlast"), frame(ranklog.StreamStdout, raw))})
	if r := p.CLI(t, "logs", "j").Want(t, cli.ExitOK); r.Out != "[0] ab\n[0] last\n[1] one\n[1] t\x1b[31mwo\x00\n" || r.Err != "[0] oh\n" {
		t.Errorf("got %q and %q", r.Out, r.Err)
	}
	if r := p.CLI(t, "logs", "--rank", "1", "j").Want(t, cli.ExitOK); r.Out != raw || r.Err != "" {
		t.Errorf("got %q and %q", r.Out, r.Err)
	}
	p.Asked()
	p.CLI(t, "logs", "--rank", "0", "--tail", "0", "--since", "2026-03-01", "j").Want(t, cli.ExitOK)
	if asked := p.Asked(); asked[len(asked)-1] != "GET /v1/jobs/jaaaaaaaaaaaa/logs?since=2026-03-01T00%3A00%3A00Z&tail=0" {
		t.Errorf("asked for %q", asked)
	}
	for _, args := range [][]string{{"--rank", "2", "j"}, {"--rank", "-1", "j"}, {"--tail", "-1", "j"}, {"--since", "x", "j"}, {}} {
		p.CLI(t, append([]string{"logs"}, args...)...).Want(t, cli.ExitUsage, `^starling: `)
	}
}

// A log that breaks off is an error, and so is a malformed one; the part before it is written.
func TestLogsBroken(t *testing.T) {
	t.Parallel()
	whole := frame(ranklog.StreamStdout, "start\n")
	huge := frame(ranklog.StreamStdout, "")
	huge = huge[:4] + "\xff\xff\xff\xff"
	for name, x := range map[string]struct{ log, says string }{
		"cut in a header": {whole + "\x01\x00", `unexpected EOF`}, "cut in a frame": {whole + frame(ranklog.StreamStdout, "\nabc")[:9], `unexpected EOF`},
		"unknown stream": {whole + frame(9, "x"), `frame of unknown stream 9`}, "too long": {whole + huge, `this is no frame`},
		"not zero": {whole + "\x01\x01\x00\x00\x00\x00\x00\x01x", `this is no frame`},
	} {
		p := answering(t, clitest.Answers{"GET /v1/jobs/{id}": jobWith(t, nil), "GET /v1/jobs/{id}/logs": logsOf(x.log, x.log)})
		if r := p.CLI(t, "logs", "--rank", "0", "j").Want(t, cli.ExitFailed, `^starling: reading a log: .*`+x.says); !strings.HasPrefix(r.Out, "start\n") {
			t.Errorf("%s: %q", name, r.Out)
		}
	}
}

// How a job ended is the exit code of each command that waits for it.
func TestExitCodesOfJobs(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		state record.State
		code  record.Code
		want  cli.ExitCode
	}{
		{record.Succeeded, "", cli.ExitOK}, {record.Failed, record.CodeProgram, cli.ExitFailed}, {record.Failed, record.CodeNoMatch, cli.ExitNoMatch},
		{record.Failed, record.CodePayment, cli.ExitPayment}, {record.Failed, record.CodeTimeout, cli.ExitTimeout},
		{record.Failed, record.CodeLost, cli.ExitLost}, {record.Failed, record.CodeInput, cli.ExitUsage},
		{record.Failed, record.CodePeer, cli.ExitPeer}, {record.Failed, "unheard of", cli.ExitFailed}, {record.Stopped, "", cli.ExitFailed},
	} {
		j := jobWith(t, ended(x.state, x.code, "it \x07ended"))
		p := answering(t, clitest.Answers{"GET /v1/jobs/{id}": j, "GET /v1/jobs/{id}/logs": logsOf("", "")})
		for _, line := range []string{"wait j", "logs -f j"} {
			r := p.CLI(t, strings.Fields(line)...).Want(t, x.want)
			if x.want != cli.ExitOK {
				r.Want(t, x.want, `^starling: job jaaaaaaaaaaaa `+string(x.state)+`: it  ended$`, `^hint: starling why jaaaaaaaaaaaa$`)
			}
		}
		p.CLI(t, "wait", "j").Want(t, x.want, `^jaaaaaaaaaaaa `+string(x.state)+` in 30s, cost 0\.00 STAR, 0 receipts, 0 transactions$`)
	}
}

// A peer that ends while it is waited for is not a job that ended.
func TestWaitCut(t *testing.T) {
	t.Parallel()
	j := jobWith(t, nil)
	event := func(j record.Job) string {
		b, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		return "event: job\ndata: " + string(b) + "\n\n"
	}
	done := jobWith(t, ended(record.Succeeded, "", ""))
	for events, x := range map[string]struct {
		code cli.ExitCode
		says string
	}{
		"":                        {cli.ExitUnreachable, `^starling: waiting for job jaaaaaaaaaaaa: no peer is running here`},
		": ping\n\n" + event(j):   {cli.ExitUnreachable, `no peer is running here`},
		event(j) + event(done):    {cli.ExitOK, `^jaaaaaaaaaaaa succeeded in 30s`},
		"event: job\ndata: {\"\n": {cli.ExitFailed, `reading events: unexpected end of JSON input`},
		"event: other\ndata: {\"\n\n" + event(done): {cli.ExitOK, `succeeded`},
	} {
		p := answering(t, clitest.Answers{"GET /v1/jobs/{id}": j, "GET /v1/jobs/{id}/events": http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(events)) })})
		p.CLI(t, "wait", "j").Want(t, x.code, x.says)
	}
}

// Each job of a list is stopped in turn; the first refusal ends it.
func TestStop(t *testing.T) {
	t.Parallel()
	over := jobWith(t, ended(record.Stopped, "", ""))
	p := answering(t, clitest.Answers{"DELETE /v1/jobs/{id}": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "gone" {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":{"code":"not_found","message":"there is no job gone"}}`))
		}
	}), "GET /v1/jobs/jrun": jobWith(t, func(j *record.Job) { j.ID = "jrun" }), "GET /v1/jobs/{id}": over})
	p.CLI(t, "stop", "jrun", "jaaa").Want(t, cli.ExitOK, `^jrun +stopping$`, `^jaaaaaaaaaaaa +stopped$`)
	p.CLI(t, "stop", "--wait", "jaaa").Want(t, cli.ExitOK, `^jaaaaaaaaaaaa +stopped$`)
	p.Asked()
	if r := p.CLI(t, "stop", "gone", "jrun").Want(t, cli.ExitUsage, `^starling: there is no job gone$`); r.Out != "" || len(p.Asked()) != 1 {
		t.Errorf("after a refusal: %q", r.Out)
	}
	p.CLI(t, "stop").Want(t, cli.ExitUsage, `stop needs an id`, `^hint: starling stop ID\.\.\.`)
}

// An output is written once, beneath the directory that was named, and only where the job asked for it.
func TestGet(t *testing.T) {
	t.Parallel()
	with := func(path string, change func(*record.Job)) record.Job {
		return jobWith(t, func(j *record.Job) {
			ended(record.Succeeded, "", "")(j)
			for i := range j.Ranks {
				j.Ranks[i].Outputs = []record.Output{{Path: path, Blob: record.Blob{CID: fmt.Sprint("cid", i), Size: 5}}}
			}
			if change != nil {
				change(j)
			}
		})
	}
	blob := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("of " + r.PathValue("cid"))) })
	p := answering(t, clitest.Answers{"GET /v1/jobs/{id}": with("/out", nil), "GET /v1/blobs/{cid}": blob})
	dir := filepath.Join(t.TempDir(), "results")
	p.CLI(t, "get", "j", dir).Want(t, cli.ExitOK, `^RANK +OUTPUT +BYTES +SAVED TO$`, `^1 +/out +5 +`+filepath.Join(dir, "1", "out")+`$`)
	p.CLI(t, "get", "j", dir).Want(t, cli.ExitFailed, `^starling: downloading /out of rank 0: .*exists`)
	p.CLI(t, "get", "--rank", "1", "j", filepath.Join(dir, "one")).Want(t, cli.ExitOK)
	for file, want := range map[string]string{"0/out": "of cid0", "1/out": "of cid1", "one/out": "of cid1"} {
		if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v, want %q", file, b, err, want)
		}
	}
	p.CLI(t, "get", "--rank", "2", "j", dir).Want(t, cli.ExitUsage, `has ranks 0 to 1, not 2`)
	for _, path := range []string{"/../../etc/x", "/other", "", "/out/../../x"} {
		p := answering(t, clitest.Answers{"GET /v1/jobs/{id}": with(path, nil)})
		p.CLI(t, "get", "j", dir).Want(t, cli.ExitFailed, `the job asked for no such output$`)
	}
}

// A job without outputs has a reason for it, and a hint.
func TestGetNothing(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		change     func(*record.Job)
		says, hint string
	}{
		{nil, `has no outputs yet: it is running`, `starling wait jaaaaaaaaaaaa`},
		{func(j *record.Job) { j.Stopping = true }, `has no outputs yet: it is being stopped`, `starling wait jaaaaaaaaaaaa`},
		{ended(record.Failed, "", ""), `has no outputs`, `starling status jaaaaaaaaaaaa`},
		{func(j *record.Job) { j.Spec.Outputs = nil }, `has no outputs`, `name the directories to keep with --out`},
		{func(j *record.Job) { ended(record.Succeeded, "", "")(j); j.Verified = make([]record.Verified, 2) },
			`the results of job jaaaaaaaaaaaa are held back: 2 unchecked`, `wait for the check, or get them with --unchecked`},
	} {
		p := answering(t, clitest.Answers{"GET /v1/jobs/{id}": jobWith(t, x.change)})
		p.CLI(t, "get", "j", t.TempDir()).Want(t, cli.ExitFailed, `^starling: .*`+x.says+`$`, `^hint: `+x.hint)
	}
}

// A quote shows the providers with room for the job; a job without a provider has an exit code of its own.
func TestQuote(t *testing.T) {
	t.Parallel()
	q := record.Quotation{Places: true, Cost: 50_000, MaxCost: 100_000, Lamports: record.Lamports{Fees: 5000, Most: 9000, Rent: 7000},
		Quotes: []record.QuotedOffer{{Provider: sign.Key{1}, Region: "eu\x1b", Price: 40_000, Leases: 3, Route: "direct", Took: 5 * time.Millisecond, Ranks: 2,
			Ready: true, Units: record.Units{Class: "cpu"}}, {Provider: sign.Key{2}, Route: "gossip", Misfit: "too dear"}},
		Declined: []record.Declined{{Provider: sign.Key{3}, Reason: "full\nof work"}}}
	p := answering(t, clitest.Answers{"POST /v1/quotes": &q})
	path := p.File(t, "job.yaml", jobFile)
	p.CLI(t, "quote", path).Want(t, cli.ExitOK, `^job +words$`, `^budget +0\.1`,
		`^`+sign.Key{1}.Short()+` +cpu +eu +0\.04 STAR +3 +direct in 5ms +2 +has the image$`, `^`+sign.Key{2}.Short()+` .* - +too dear$`,
		`^`+sign.Key{3}.Short()+` .* full of work$`, `^2 ranks for 1h0m0s would cost 0\.05 STAR, at most 0\.10 STAR$`,
		`^and of the peer's SOL about 0\.000005 for fees, at most 0\.000009 if priority fees rise, and 0\.000007 for rent, which is refunded$`)
	p.CLI(t, "quote", path, "--count", "3").Want(t, cli.ExitUsage, `^starling: job flags cannot be combined with a job file: set them in the file$`)
	q = buyer.Quotation{Reason: "no offers", Quotes: []buyer.QuotedOffer{}}
	p = answering(t, clitest.Answers{"POST /v1/quotes": &q, "GET /v1/node": api.NodeInfo{Peers: 0}})
	p.CLI(t, "quote", p.File(t, "job.yaml", jobFile)).Want(t, cli.ExitNoMatch, `^starling: the job cannot be placed now: no offers$`,
		`^warning: this peer is connected to no other`).Not(t, `would cost`)
}

// A quote shows the digest of an image, and gets the credentials for its registry and no other secret.
func TestQuoteImage(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0f", 32)
	p := answering(t, clitest.Answers{"POST /v1/quotes": &record.Quotation{Places: true, Image: "ghcr.io/acme/train:v1@" + digest}})
	user, key := p.File(t, "password", "hush\n"), p.File(t, "key", "other")
	for image, sent := range map[string]bool{"ghcr.io/acme/train:v1": true, "ghcr.io/acme/train@" + digest: false} {
		p.CLI(t, "quote", "--max-price", "1", "--registry-auth", "ada=file:"+user, "--secret", "key=file:"+key, image).Want(t, cli.ExitOK,
			`^image +ghcr\.io/acme/train:v1@`+digest+`$`)
		asked := p.Asked()
		if len(asked) != 1 || strings.Contains(asked[0], "other") || strings.Contains(asked[0], "hush") != sent {
			t.Errorf("%s: asked for %q", image, asked)
		}
	}
	p.CLI(t, "run", "--dry-run", "--max-price", "1", "ghcr.io/acme/train:v1").Want(t, cli.ExitOK, `^image ghcr\.io/acme/train:v1 is `+digest+` now$`)
	refusal := &api.Error{Status: http.StatusBadRequest, Code: api.CodeNoImage, Message: "job refused: spec.image: app:1: not found in the registry"}
	p = answering(t, clitest.Answers{"POST /v1/quotes": refusal})
	p.CLI(t, "quote", "--max-price", "1", "app:1").Want(t, cli.ExitUsage, `spec\.image`, `^hint: .*starling image push`)
}

// Job files: every problem with the file's name and place, and files that are missing.
func TestValidate(t *testing.T) {
	t.Parallel()
	p := answering(t, nil)
	p.File(t, "app.wasm", "x")
	good := p.File(t, "job.yaml", jobFile)
	p.CLI(t, "job", "validate", good).Want(t, cli.ExitOK, `^module +`+filepath.Join(p.Files, "app.wasm")+`$`, `^ranks +2$`,
		`^each +1 × cpu$`, `^output +/out$`, `^time +2m0s in the queue, 1h0m0s running$`, `^budget +0\.1`)
	bad := p.File(t, "bad.yaml", strings.NewReplacer("count: 2", "count: two", "queue: 2m", "queue: soon").Replace(jobFile))
	p.CLI(t, "job", "validate", bad).Want(t, cli.ExitUsage, `^starling: the job file has 2 problems$`, `^`+bad+`:6:\d+: .*count`, `^`+bad+`:8:\d+: .*queue`)
	missing := p.File(t, "missing.yaml", strings.Replace(jobFile, "app.wasm", "alpine", 1))
	p.CLI(t, "job", "validate", missing).Want(t, cli.ExitUsage, `a file of the job cannot be read: .*alpine: no such file`,
		`^hint: a WASI program is a file, such as app\.wasm; a container image is given with its tag, .*alpine:latest`)
	p.CLI(t, "job", "validate", "--no-files", missing).Want(t, cli.ExitOK)
	p.CLI(t, "job", "validate", filepath.Join(p.Files, "none.yaml")).Want(t, cli.ExitUsage, `reading the job file: `)
	p.CLI(t, "job", "validate", p.File(t, "big.yaml", strings.Repeat("#", jobfile.MaxFile+1))).Want(t, cli.ExitUsage, `want at most \d+`)
	p.CLI(t, "job", "validate", "-").Want(t, cli.ExitUsage, `^starling: -`)
}

// A detached job is handed in with its files and its secret, and prints its id alone on standard output.
func TestSubmit(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse"
	submitted := jobWith(t, func(j *record.Job) { j.Warning = "the budget is small" })
	p := answering(t, clitest.Answers{"POST /v1/blobs": record.Blob{CID: "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy", Size: 1},
		"POST /v1/jobs": submitted, "GET /v1/jobs/{id}": submitted})
	p.File(t, "app.wasm", "the module")
	p.Env["TOKEN"] = secret
	path := p.File(t, "job.yaml", strings.Replace(jobFile, "  count: 2", "  count: 2\n  secrets: [{name: token, from: 'env:TOKEN', env: T}]", 1))
	r := p.CLI(t, "submit", "-d", path).Want(t, cli.ExitOK, `^warning: the budget is small$`,
		`^warning: a job with secrets has no guardians`, "^follow it with `starling logs -f jaaaaaaaaaaaa`$").Not(t, secret)
	asked := p.Asked()
	if r.Out != "jaaaaaaaaaaaa\n" || len(asked) != 2 || asked[0] != "POST /v1/blobs the module" || !strings.Contains(asked[1], `"values":{"secrets":{"token":`) {
		t.Errorf("got %q and asked for %q", r.Out, asked)
	}
	delete(p.Env, "TOKEN")
	p.CLI(t, "submit", "-d", path).Want(t, cli.ExitUsage, `^starling: secret token: variable TOKEN is not set$`)
	for line, says := range map[string]string{
		"--wait forever": `--wait: "forever", want result or paid`, "-d --wait paid": `--wait paid needs the job's end`, "-d --save x": `--save needs the job's end`,
	} {
		p.CLI(t, append([]string{"submit", path}, strings.Fields(line)...)...).Want(t, cli.ExitUsage, `^starling: `+says)
	}
	p.CLI(t, "run").Want(t, cli.ExitUsage, `run needs a module`)
	p.CLI(t, "run", "app.wasm", "arg").Want(t, cli.ExitUsage, `run does not take "arg"`, `^hint: arguments of the program come after --: starling run app\.wasm -- arg$`)
	if asked := p.Asked(); len(asked) > 0 {
		t.Errorf("asked for %q", asked)
	}
}

// A repetition sends the changes that were asked for and no others.
func TestRerun(t *testing.T) {
	t.Parallel()
	p := answering(t, clitest.Answers{"POST /v1/jobs/{id}/rerun": jobWith(t, nil), "GET /v1/jobs/{id}": jobWith(t, nil)})
	for line, want := range map[string]string{
		"":          `{}`,
		"--count 0": `{"count":0}`,
		"-n 8 --max-price 0.08 --budget 2.5 --queue-timeout 30s --timeout 4h": `{"count":8,"maxPrice":80000,"budget":2500000,"queue":"30s","run":"4h0m0s"}`,
	} {
		p.CLI(t, append([]string{"job", "rerun", "-d", "jold"}, strings.Fields(line)...)...).Want(t, cli.ExitOK, `^jaaaaaaaaaaaa$`)
		if asked := p.Asked(); len(asked) != 2 || asked[1] != "POST /v1/jobs/jaaaaaaaaaaaa/rerun "+want {
			t.Errorf("%q asked for %q, want %s", line, asked, want)
		}
	}
	for _, line := range []string{"--count -1", "--max-price cheap", "--budget 0.0000001", "--timeout 4", "--wait x", "two"} {
		p.CLI(t, append([]string{"job", "rerun", "-d", "jold"}, strings.Fields(line)...)...).Want(t, cli.ExitUsage, `^starling: `)
	}
	if asked := p.Asked(); len(asked) > 0 {
		t.Errorf("asked for %q", asked)
	}
}

// A repetition whose signed URLs ended needs the keys that sign others.
func TestRerunWithoutKeys(t *testing.T) {
	t.Parallel()
	const source = "s3://bucket/w.bin"
	old := jobWith(t, func(j *record.Job) {
		j.Spec.Inputs = []job.Input{{Source: source, Path: "/in/w.bin"}}
		blobs := map[string]job.Blob{}
		for _, s := range j.Spec.Sources() {
			blobs[s] = job.Blob{CID: "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"}
		}
		b := blobs[source]
		b.URLs = []string{"https://s3.example/w.bin?X-Amz-Date=20240102T030405Z&X-Amz-Expires=60&X-Amz-Signature=hush"}
		blobs[source] = b
		j.Spec.Blobs = blobs
	})
	p := answering(t, clitest.Answers{"POST /v1/jobs/{id}/rerun": old, "GET /v1/jobs/{id}": old})
	p.CLI(t, "job", "rerun", "-d", "jold").Want(t, cli.ExitUsage,
		`^starling: running job jold again: input s3://bucket/w\.bin: the signed URL of the job ended at 2024-01-02T03:05:05Z, .*no keys: set AWS_ACCESS_KEY_ID`,
		`^hint: set the keys, or submit the job again$`).Not(t, "hush")
}
