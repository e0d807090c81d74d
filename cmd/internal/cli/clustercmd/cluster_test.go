package clustercmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job/jobfile"
)

func TestClusterUp(t *testing.T) {
	t.Parallel()
	f := newFakeBuyer(t)
	file := f.file(t, "sweep.yaml", sweepFile)
	f.cli(t, "job", "validate", file).Want(t, cli.ExitOK, `^cluster +ray, 3 members`, `^ranks +3$`)
	var out, errs clitest.Buffer
	done := make(chan int, 1)
	go func() { done <- f.app(&out, &errs).Run(t.Context(), []string{"cluster", "up", file}) }()
	id := "jsubmittedsweep"
	clitest.Eventually(t, "the cluster is submitted", func() bool { _, err := f.Job(id); return err == nil })
	f.cli(t, "cluster", "status", "sweep").Want(t, cli.ExitOK, `^state +matching$`, `^0 +head +- +waiting +10\.77\.0\.2 +0 +- +- +2 +- `)
	rank := func(i int) *int { return &i }
	var steps []record.Step
	for i := range 3 {
		p := someKey(byte(i + 1)).String()
		steps = append(steps, record.Step{Kind: record.StepQuoted, Provider: p}, record.Step{Kind: record.StepHeld, Provider: p, Rank: rank(i)})
	}
	f.change(id, func(j *record.Job) {
		for i := range j.Ranks {
			j.Ranks[i].State, j.Ranks[i].Provider = record.RankLeased, someKey(byte(i+1))
		}
	}, steps...)
	f.change(id, func(j *record.Job) {
		up(j)
		j.Cluster.Ready = j.Ended // zero
		j.Ranks[2].Live = record.Live{Phase: "pulling", Pulled: 1 << 20, PullTotal: 4 << 20}
	})
	f.cli(t, "cluster", "ls").Want(t, cli.ExitOK, `^NAME +JOB +ENGINE +STATE`, `^sweep +jsubmitt +ray +starting, 2 of 3 run +2/3 `)
	f.cli(t, "cluster", "status", "sweep").Want(t, cli.ExitOK, `^2 +worker +\w{8} +pulling 25% +10\.77\.0\.4 `)
	f.change(id, up)
	if code := <-done; code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	// Each unit of rate is a millionth of a base unit per slot of 400 ms: 10 a slot make 90000 an hour, for each of three.
	clitest.Result{Code: 0, Out: out.String(), Err: errs.String()}.Want(t, cli.ExitOK, `^cluster sweep, job jsubmittedsweep$`, `^3 providers answered, 3 members held$`, `^3 leases signed, \w+ is the head$`,
		`^all members have the image and the program$`, `^every member reaches every other one: 3 direct$`,
		`^cluster sweep is ready: 3 members, ray, 0\.27 STAR an hour, at most 5\.00 STAR in all, until \d+-.* or 30m0s of idleness$`,
		`^  starling cluster port-forward sweep `, `^    ray job submit --address http://127\.0\.0\.1:8265 --working-dir \. -- python script\.py$`, `RAY_AUTH_TOKEN=\$\(starling cluster token sweep\)`, `^  starling cluster down sweep `)
	f.cli(t, "cluster", "status", "sweep").Want(t, cli.ExitOK, `^cluster +sweep$`, `^state +ready$`, `^engine +ray, on a wan network or a faster one$`, `^ready +\d+s ago`, `^autostop +30m0s$`,
		`^cost +0\.003 STAR, 0\.27 STAR an hour, budget 5\.00 STAR$`, `^RANK +ROLE +PROVIDER +STATE +ADDRESS +EPOCH +PATH +RTT +GPUS +SINCE +COST`,
		`^0 +head +\w{8} +running +10\.77\.0\.2 +1 +- +- +2 NVIDIA L4 \(simulated\) +\d+s +0\.001 STAR`, `^1 +worker +\w{8} +running +10\.77\.0\.3 +1 +direct +12ms `)
	f.cli(t, "cluster", "status", "sweep", "--paths").Want(t, cli.ExitOK, `^measured +3 paths, `, `^RANKS +RTT +MBIT/S +PATH$`, `^0–1 +12ms +940 +direct$`, `^0–2 +61ms +- +relayed$`)
	var s clusterInfo
	if err := json.Unmarshal([]byte(f.cli(t, "cluster", "status", "sweep", "-o", "json").Want(t, cli.ExitOK).Out), &s); err != nil || len(s.Members) != 3 || s.Members[1].Path != record.PathDirect || s.Hourly != 270_000 {
		t.Errorf("%+v, %v", s, err)
	}
	f.cli(t, "cluster", "status", "sweep", "-o", "yaml").Want(t, cli.ExitOK, `^name: sweep$`)
	f.cli(t, "cluster", "up", file).Want(t, cli.ExitUsage, `a cluster is called sweep already: jsubmittedsweep, ready`, `^hint: starling cluster down sweep`)

	f.cli(t, "cluster", "scale", "sweep", "5").Want(t, cli.ExitOK, `^cluster sweep: from 3 to 5 members$`)
	f.cli(t, "cluster", "status", "sweep").Want(t, cli.ExitOK, `^state +ready, 3 of 5 run$`)
	f.refuse = fmt.Errorf("%w: torchrun counts its nodes from the start", record.ErrRefused)
	f.cli(t, "cluster", "scale", "sweep", "6").Want(t, cli.ExitUsage, `torchrun counts its nodes from the start`)
	for _, size := range []string{"0", "-1", "many", "257"} {
		f.cli(t, "cluster", "scale", "sweep", "--", size).Want(t, cli.ExitUsage, `is not a size from 1 to 256`)
	}
	f.cli(t, "cluster", "down", "sweep").Want(t, cli.ExitOK, `^jsubmittedsweep +stopped$`)
	f.cli(t, "cluster", "ls").Want(t, cli.ExitOK, `^NAME`)
	if r := f.cli(t, "cluster", "ls", "-a").Want(t, cli.ExitOK, `^sweep .* stopped `); strings.Contains(f.cli(t, "cluster", "ls").Out, "sweep") {
		t.Errorf("%s", r.Out)
	}
	for _, args := range [][]string{{"cluster", "exec", "sweep", "--", "ls"}, {"cluster", "port-forward", "sweep"}, {"cluster", "scale", "sweep", "2"}} {
		f.cli(t, args...).Want(t, cli.ExitUsage, `cluster sweep has ended`, `^hint: starling cluster up FILE`)
	}
	f.cli(t, "cluster", "logs", "sweep").Want(t, cli.ExitOK, `^\[1\] rank 1 says hello$`)
}

// What ends before it is ready, and an interrupt.
func TestClusterUpFails(t *testing.T) {
	t.Parallel()
	f := newFakeBuyer(t)
	file := f.file(t, "sweep.yaml", sweepFile)
	start := func(ctx context.Context) (wait func() clitest.Result) {
		var out, errs clitest.Buffer
		done := make(chan int, 1)
		go func() { done <- f.app(&out, &errs).Run(ctx, []string{"cluster", "up", file}) }()
		clitest.Eventually(t, "it follows", func() bool { return strings.Contains(errs.String(), "cluster sweep, job ") })
		return func() clitest.Result { return clitest.Result{Code: <-done, Out: out.String(), Err: errs.String()} }
	}
	ctx, interrupt := context.WithCancel(t.Context())
	wait := start(ctx)
	interrupt()
	wait().Want(t, cli.ExitInterrupted, `the cluster is still starting`, `^hint: starling cluster status sweep`)
	f.cli(t, "cluster", "down", "sweep").Want(t, cli.ExitOK)
	f.mu.Lock()
	f.jobs = nil
	f.mu.Unlock()
	wait = start(t.Context())
	f.change("jsubmittedsweep", func(j *record.Job) {
		j.State, j.Code, j.Reason = record.Failed, record.CodeNoMatch, "no three of them are near enough"
	})
	wait().Want(t, cli.ExitNoMatch, `no three of them are near enough`, `^hint: starling why jsubmittedsweep`)
}

func TestClusterRefuses(t *testing.T) {
	t.Parallel()
	f := newFakeBuyer(t)
	f.add(t, "jone", sweepFile)
	f.add(t, "jtwo", sweepFile)
	f.add(t, "jmpi", strings.Replace(strings.Replace(sweepFile, "name: sweep", "name: ring", 1), "engine: ray\n  resources: {gpus: 2}\n  autostop: 30m", "engine: mpi\n  command: [ring]", 1))
	f.add(t, "jplain", "{apiVersion: v1, kind: Job, metadata: {name: plain}, spec: {module: x.wasm, payment: {maxPrice: 1}}}")
	f.change("jmpi", up)
	f.cli(t, "cluster", "status", "sweep").Want(t, cli.ExitUsage, `2 clusters are called sweep: jtwo, jone`, `^hint: give the id`)
	f.cli(t, "cluster", "status", "jone").Want(t, cli.ExitOK, `^job +jone$`)
	f.cli(t, "cluster", "status", "never").Want(t, cli.ExitUsage, `no cluster is called "never"`, `^hint: .starling cluster ls`)
	f.cli(t, "cluster", "status", "jplain").Want(t, cli.ExitUsage, `job jplain is a plain job, not a cluster`, `^hint: starling status jplain`)
	f.cli(t, "cluster", "down", "ring", "never").Want(t, cli.ExitUsage, `no cluster is called "never"`)
	f.cli(t, "cluster", "exec", "ring", "--rank", "3", "--", "ls").Want(t, cli.ExitUsage, `ranks 0 to 2, not 3`)
	f.cli(t, "cluster", "exec", "ring").Want(t, cli.ExitUsage, `exec needs a command`)
	f.cli(t, "cluster", "exec", "ring", "--all", "-t", "--", "ls").Want(t, cli.ExitUsage, `--all goes with none of`)
	f.cli(t, "cluster", "logs", "--rank", "-2", "ring").Want(t, cli.ExitUsage, `ranks 0 to 2, not -2`)
	f.cli(t, "cluster", "token", "ring").Want(t, cli.ExitUsage, `runs mpi, which takes no token`)
	f.cli(t, "cluster", "port-forward", "ring").Want(t, cli.ExitUsage, `needs a port`)
	f.cli(t, "cluster", "port-forward", "ring", "1:65536").Want(t, cli.ExitUsage, `"65536" is not a port`)
	f.cli(t, "cluster", "port-forward", "ring", "--rank", "9", "80").Want(t, cli.ExitUsage, `ranks 0 to 2, not 9`)
	f.cli(t, "cluster", "port-forward", "--address", "here", "ring", "80").Want(t, cli.ExitUsage, `not an IP address`)
	f.cli(t, "cluster", "up", f.file(t, "j.yaml", "{apiVersion: v1, kind: Job, metadata: {name: plain}, spec: {module: x.wasm, payment: {maxPrice: 1}}}")).Want(t, cli.ExitUsage,
		`is the file of a plain job`, `^hint: starling submit`)
	for change, want := range map[string]string{
		"engine: ray>engine: slurm":                            `engine "slurm" is not known: want dask, mpi, none, ray, torchrun`,
		"engine: ray>engine: mpi\n  placement: {network: wan}": `engine mpi cannot live on a wan network, it needs metro: `,
		"size: 3>size: 300":                                    `spec\.size: 300, want 1 to 256`,
		"autostop: 30m>privileged: true":                       `spec\.privileged`,
	} {
		from, to, _ := strings.Cut(change, ">")
		f.cli(t, "cluster", "up", f.file(t, "c.yaml", strings.Replace(sweepFile, from, to, 1))).Want(t, cli.ExitUsage, want)
	}
}

// The examples are files that can be brought up, name every option of their engine, and say it of every member.
func TestClusterExamples(t *testing.T) {
	t.Parallel()
	f := newFakeBuyer(t)
	for name, e := range cluster.Engines {
		got := f.cli(t, "cluster", "example", name)
		got.Want(t, cli.ExitOK, `^kind: Cluster$`, `starling cluster example `+name+` > `+name+`\.yaml`)
		file := f.file(t, name+".yaml", got.Out)
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), "train.py"), nil, 0o600); err != nil { // that one of them has as an input
			t.Fatal(err)
		}
		f.cli(t, "job", "validate", file).Want(t, cli.ExitOK, `^cluster +`+name+`, 4 members`)
		j, err := jobfile.Parse([]byte(got.Out), jobfile.Token{Decimals: 6})
		if err != nil {
			t.Fatal(err)
		}
		for option := range e.Options {
			if j.Cluster.Options[option] == "" {
				t.Errorf("the example for %s has no %s", name, option)
			}
		}
		if j.Name != name || j.Cluster.Engine != name || e.Serves != (strings.Contains(got.Out, "# command:")) && name != "none" {
			t.Errorf("the example for %s is of %s, called %s, with command %q", name, j.Cluster.Engine, j.Name, j.Cluster.Command)
		}
	}
	files, err := examples.ReadDir("examples")
	if err != nil || len(files) != len(cluster.Engines) {
		t.Errorf("%d examples for %d engines, %v", len(files), len(cluster.Engines), err)
	}
	f.cli(t, "cluster", "example", "slurm").Want(t, cli.ExitUsage, `engine "slurm" is not known: want dask, mpi, none, ray, torchrun`)
}

func TestClusterExec(t *testing.T) {
	t.Parallel()
	f := newFakeBuyer(t)
	f.add(t, "jone", sweepFile)
	f.cli(t, "cluster", "exec", "sweep", "--all", "--", "ls").Want(t, cli.ExitUsage, `no member of cluster sweep runs: matching`)
	f.cli(t, "cluster", "exec", "sweep", "--", "ls").Want(t, cli.ExitUsage, `rank 0 of the job is waiting`)
	f.change("jone", up)
	if r := f.cli(t, "cluster", "exec", "sweep", "--rank", "2", "--", "say", "it").Want(t, cli.ExitOK); r.Out != "say it\n" {
		t.Errorf("%q", r.Out)
	}
	f.cli(t, "cluster", "exec", "sweep", "--", "fail").Want(t, 1)
	f.cli(t, "cluster", "exec", "sweep", "--all", "--", "hello").Want(t, cli.ExitOK, `^\[0\] hello$`, `^\[1\] hello$`, `^\[2\] hello$`)
	f.cli(t, "cluster", "exec", "sweep", "--all", "--", "fail").Want(t, 1, `^rank 0: exit code 1$`, `^rank 2: exit code 3$`)
	f.change("jone", func(j *record.Job) { j.Ranks[0].State = record.RankWaiting })
	f.cli(t, "cluster", "exec", "sweep", "--all", "--", "fail").Want(t, 2, `^1 member of 3 do not run now and are left out$`)
	f.cli(t, "cluster", "logs", "sweep").Want(t, cli.ExitOK, `^\[2\] rank 2 says hello$`)
	if r := f.cli(t, "cluster", "logs", "--rank", "1", "sweep").Want(t, cli.ExitOK); r.Out != "rank 1 says hello\n" {
		t.Errorf("%q", r.Out)
	}
}

// rayHead answers as the dashboard port of a head does that takes the token of these tests.
func rayHead(w http.ResponseWriter, q *http.Request) {
	if q.Header.Get("Authorization") != "Bearer "+fakeToken {
		http.Error(w, "Unauthorized: Missing authentication token", http.StatusUnauthorized)
		return
	}
	io.WriteString(w, "[]")
}

// The tunnel to Ray's dashboard has the token; the one to another port carries bytes.
func TestClusterForward(t *testing.T) {
	t.Parallel()
	f := newFakeBuyer(t)
	f.add(t, "jone", sweepFile)
	f.cli(t, "cluster", "token", "sweep").Want(t, cli.ExitOK, `^`+fakeToken+`$`)
	f.cli(t, "cluster", "port-forward", "--rank", "1", "sweep").Want(t, cli.ExitUsage, `needs a port`, `^hint: `)
	f.change("jone", up)
	f.handler(t, http.HandlerFunc(rayHead))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errs clitest.Buffer
	done := make(chan int, 1)
	go func() {
		done <- f.app(&out, &errs).Run(ctx, []string{"cluster", "port-forward", "sweep", "0:8265", "0:10001"})
	}()
	pattern := regexp.MustCompile(`(?m)^(?:http://)?(127\.0\.0\.1:\d+) -> port (\d+) of rank 0(, with the cluster's token)?$`)
	clitest.Eventually(t, "it listens", func() bool { return len(pattern.FindAllString(out.String(), -1)) == 2 })
	for _, m := range pattern.FindAllStringSubmatch(out.String(), -1) {
		resp, err := http.Get("http://" + m[1] + "/api/jobs/")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := map[string]int{"8265": 200, "10001": 401}[m[2]]; err != nil || resp.StatusCode != want || (m[2] == "8265") != (m[3] != "") {
			t.Errorf("port %s: %d %s, %v", m[2], resp.StatusCode, b, err)
		}
		if m[2] != "8265" {
			if line := "ray.init(\"ray://" + m[1] + "\")"; !strings.Contains(errs.String(), line) {
				t.Errorf("%q is not said: %s", line, errs.String())
			}
			continue
		}
		if line := "ray job submit --address http://" + m[1] + " "; !strings.Contains(errs.String(), line) {
			t.Errorf("%q is not said: %s", line, errs.String())
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+m[1]+"/api/jobs/", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://evil.example")
		resp, err = http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("a page of another site may submit: %d", resp.StatusCode)
		}
	}
	interrupt()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
