package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/overlay/egress"
)

const (
	testImage = "acme/x@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	testCID   = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
)

// moduleJob is a valid job of a WASI program, containerJob one of a container, clusterJob a cluster.
func moduleJob(t *testing.T) Job {
	return complete(t, Job{Module: "a.wasm", Outputs: []Output{{"/out"}}})
}

func containerJob(t *testing.T) Job {
	return complete(t, Job{Image: testImage, Outputs: []Output{{"/out"}}, Health: &Health{TCP: 80}})
}

func clusterJob(t *testing.T) Job {
	return complete(t, Job{Image: testImage, Count: 4, Cluster: &Cluster{Engine: "ray"}}, "spec.size")
}

// complete is a job of which these fields were set, at a price of 1.
func complete(t testing.TB, j Job, set ...string) Job {
	t.Helper()
	j.Payment.MaxPrice, j.Payment.Decimals = 1_000_000, 6
	j, err := j.Complete(func(field string) bool { return slices.Contains(set, field) })
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// many is a map of n entries.
func many(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprintf("V%d", i)] = "x"
	}
	return m
}

// keys are n providers.
func keys(n int) (out []sign.Key) {
	for i := range n {
		out = append(out, sign.NewPrivate([32]byte{byte(i), byte(i >> 8)}).Key())
	}
	return out
}

// regions are n regions.
func regions(n int) (out []market.Region) {
	for i := range n {
		out = append(out, market.Region(fmt.Sprintf("r%d", i)))
	}
	return out
}

// secretsOf are n secrets.
func secretsOf(n int) (out []Secret) {
	for i := range n {
		out = append(out, Secret{Name: fmt.Sprintf("s%d", i), From: "env:A"})
	}
	return out
}

// inputsIn are n inputs, each in a directory of its own below dir.
func inputsIn(dir string, n int) (out []Input) {
	for i := range n {
		out = append(out, Input{Source: fmt.Sprintf("s%d", i), Path: fmt.Sprintf("%s/%d/f", dir, i)})
	}
	return out
}

// edge is a change of a valid job to the last value on one side of a rule: in is accepted, out refused at field.
type edge struct {
	name    string
	in, out func(*Job)
	field   string
}

// checkEdges holds both sides of each rule.
func checkEdges(t *testing.T, valid func(*testing.T) Job, edges []edge) {
	for _, e := range edges {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			j := valid(t)
			if e.in(&j); j.Check() != nil {
				t.Errorf("inside: %v", j.Check())
			}
			j = valid(t)
			e.out(&j)
			wrong, ok := errors.AsType[*Error](j.Check())
			if !ok || len(wrong.Problems) != 1 || wrong.Problems[0].Field != e.field {
				t.Errorf("outside: got %v, want one problem of %s", wrong, e.field)
			}
		})
	}
}

// of makes the two sides of an edge of a setter.
func of[T any](set func(*Job, T), in, out T) (a, b func(*Job)) {
	return func(j *Job) { set(j, in) }, func(j *Job) { set(j, out) }
}

// around is an edge between two values.
func around[T any](field string, set func(*Job, T), in, out T) edge {
	e := edge{name: fmt.Sprintf("%s %.40q", field, fmt.Sprint(out)), field: field}
	e.in, e.out = of(set, in, out)
	return e
}

// Every rule of a module's job holds at its edge, and names its field alone.
func TestEdgesOfModules(t *testing.T) {
	t.Parallel()
	count := func(j *Job, n uint32) { j.Count = n }
	units := func(j *Job, n uint32) { j.Resources.Units = n }
	labels := func(j *Job, n int) { j.Labels = many(n) }
	label := func(j *Job, v string) { j.Labels = map[string]string{"a": v} }
	env := func(j *Job, n int) { j.Env = many(n) }
	variable := func(j *Job, v string) { j.Env = map[string]string{"A": v} }
	name := func(j *Job, k string) { j.Env = map[string]string{k: ""} }
	args := func(j *Job, n int) { j.Args = make([]string, n) }
	arg := func(j *Job, n int) { j.Args = []string{strings.Repeat("x", n)} }
	total := func(j *Job, n int) {
		j.Args = []string{strings.Repeat("x", n/4), strings.Repeat("y", n/4),
			strings.Repeat("z", n/4), strings.Repeat("w", n-3*(n/4))}
	}
	const full = runtime.MaxArgBytes - ownBytes - 5 // four arguments and an empty entrypoint
	queue := func(j *Job, d time.Duration) { j.Timeouts.Queue = d }
	run := func(j *Job, d time.Duration) { j.Timeouts.Run = d }
	pull := func(j *Job, d time.Duration) { j.Timeouts.Pull = d }
	start := func(j *Job, d time.Duration) { j.Timeouts.Start = d }
	stop := func(j *Job, d time.Duration) { j.Timeouts.Stop = d }
	keep := func(j *Job, d time.Duration) { j.Keep = Span(d) }
	restarts := func(j *Job, n int) { j.Restart.Max = n }
	backoff := func(j *Job, d time.Duration) { j.Restart.Policy, j.Restart.Backoff = RestartAlways, Span(d) }
	guardians := func(j *Job, n uint32) { j.Guardians = n }
	standbys := func(j *Job, n uint32) { j.Guardians, j.Standbys = 3, n }
	excluded := func(j *Job, n int) { j.Placement.Exclude = keys(n) }
	near := func(j *Job, n int) { j.Placement.Regions = regions(n) }
	rounds := func(j *Job, n uint32) { j.Rounds = &Rounds{Count: n} }
	inputs := func(j *Job, n int) { j.Inputs = inputsIn("/data", n) }
	wide := func(j *Job, n int) { j.Inputs = inputsIn("", n) }
	dst := func(j *Job, p string) { j.Inputs = []Input{{Source: "a", Path: p}} }
	src := func(j *Job, s string) { j.Inputs = []Input{{Source: s, Path: "/data/x"}} }
	outputs := func(j *Job, n int) {
		j.Outputs = nil
		for i := range n {
			j.Outputs = append(j.Outputs, Output{fmt.Sprintf("/out/%d", i)})
		}
	}
	secrets := func(j *Job, n int) { j.Secrets = secretsOf(n) }
	scratch := func(j *Job, mib uint32) { j.ScratchMiB, j.Resources.PerUnit.DiskMiB = mib, 1<<31 }
	beside := func(j *Job, p string) { j.ScratchMiB, j.Outputs = 1, []Output{{p}} }
	within := func(j *Job, p string) { j.ScratchMiB, j.Inputs = 1, []Input{{Source: "a", Path: p}} }
	module := func(j *Job, s string) { j.Module = s }
	title := func(j *Job, s string) { j.Name = s }
	checkEdges(t, moduleJob, []edge{
		around("metadata.name", title, strings.Repeat("a", 63), strings.Repeat("a", 64)),
		around("metadata.name", title, "a-b", "a-"),
		around("metadata.labels", labels, MaxLabels, MaxLabels+1),
		around("metadata.labels.a", label, strings.Repeat("x", 256), strings.Repeat("x", 257)),
		around("metadata.labels.a", label, "a\tb", "a\nb"),
		around("spec.module", module, "a.wasm", ""),
		around("spec.module", module, "a", strings.Repeat("a", 4097)),
		around("spec.module", module, CIDScheme+testCID, CIDScheme+strings.ToUpper(testCID)),
		around("spec.module", module, "rank.wasm", "{rank}.wasm"),
		around("spec.module", module, "a/docker", "a/docker.sock"),
		around("spec.args", args, MaxArgs, MaxArgs+1),
		around("spec.args[0]", arg, MaxText, MaxText+1),
		around("spec.args", total, full, full+1),
		around("spec.env", env, MaxEnv, MaxEnv+1),
		around("spec.env.A", variable, strings.Repeat("x", MaxText), strings.Repeat("x", MaxText+1)),
		around("spec.env.A", variable, "\n", "\x00"),
		around("spec.env.STARLING_", name, "STARLING", "STARLING_"),
		around("spec.count", count, MaxRank, MaxRank+1),
		around("spec.count", count, 1, 0),
		around("spec.resources.units", units, market.MaxUnitsPerLease, market.MaxUnitsPerLease+1),
		around("spec.resources.units", units, 1, 0),
		around("spec.timeouts.queue", queue, MinTime, MinTime-1),
		around("spec.timeouts.queue", queue, MaxQueue, MaxQueue+1),
		around("spec.timeouts.run", run, MinTime, MinTime-1),
		around("spec.timeouts.run", run, MaxRun, MaxRun+1),
		around("spec.timeouts.pull", pull, 0, 1),
		around("spec.timeouts.pull", pull, MaxPull, MaxPull+1),
		around("spec.timeouts.start", start, 0, -1),
		around("spec.timeouts.start", start, MaxRun, MaxRun+1),
		around("spec.timeouts.stop", stop, 1, -1),
		around("spec.timeouts.stop", stop, MaxStop, MaxStop+1),
		around("spec.keep", keep, MinTime, MinTime-1),
		around("spec.idle", func(j *Job, d time.Duration) { j.Idle = Span(d) }, MinAutostop, MinAutostop-1),
		around("spec.idle", func(j *Job, d time.Duration) { j.Idle = Span(d) }, MaxRun, MaxRun+1),
		around("spec.keep", keep, MaxKeep, MaxKeep+1),
		around("spec.restart.max", restarts, MaxRestart, MaxRestart+1),
		around("spec.restart.max", restarts, 0, -1),
		around("spec.restart.backoff", backoff, MaxBackoff, MaxBackoff+1),
		around("spec.restart.backoff", backoff, 0, -1),
		around("spec.guardians", guardians, 5, 4),
		around("spec.guardians", guardians, 0, 1),
		around("spec.standbys", standbys, MaxStandbys, MaxStandbys+1),
		around("spec.placement.exclude", excluded, market.MaxExclude, market.MaxExclude+1),
		around("spec.placement.regions", near, market.MaxRegions, market.MaxRegions+1),
		around("spec.rounds.count", rounds, MaxRounds, MaxRounds+1),
		around("spec.rounds.count", rounds, 1, 0),
		around("spec.inputs", inputs, MaxInputs, MaxInputs+1),
		around("spec.inputs", wide, runtime.MaxMounts-1, runtime.MaxMounts), // and the output
		around("spec.inputs[0].dst", dst, "/d"+strings.Repeat("x", MaxPath-2), "/d"+strings.Repeat("x", MaxPath-1)),
		around("spec.inputs[0].dst", dst, "/runs", "/run/x"),
		around("spec.inputs[0].src", src, strings.Repeat("x", 4096), strings.Repeat("x", 4097)),
		around("spec.inputs[0].src", src, "a b", "a\nb"),
		around("spec.outputs", outputs, MaxOutputs, MaxOutputs+1),
		around("spec.scratch", scratch, 1<<31-1, 1<<31),
		around("spec.scratch", beside, "/scratches", "/scratch"),
		around("spec.scratch", beside, "/scratches/x", "/scratch/x"),
		around("spec.scratch", within, "/data/scratch", "/scratch/x"),
		around("spec.secrets", secrets, runtime.MaxSecrets, runtime.MaxSecrets+1),
	})
}

// Every rule of a container's job holds at its edge, and names its field alone.
func TestEdgesOfContainers(t *testing.T) {
	t.Parallel()
	health := func(set func(*Health)) func(*Job) { return func(j *Job) { set(j.Health) } }
	interval := func(j *Job, d time.Duration) { j.Health.Interval = Span(d) }
	timeout := func(j *Job, d time.Duration) { j.Health.Timeout = Span(d) }
	period := func(j *Job, d time.Duration) { j.Health.StartPeriod = Span(d) }
	retries := func(j *Job, n uint32) { j.Health.Retries = n }
	page := func(j *Job, p string) { j.Health.TCP, j.Health.HTTP = 0, &HTTPGet{Port: 1, Path: p} }
	command := func(j *Job, args ...string) { j.Health.TCP, j.Health.Command = 0, args }
	size := func(j *Job, n int) { command(j, "x", strings.Repeat("y", n-1)) }
	words := func(j *Job, n int) { command(j, strings.Split(strings.Repeat("x ", n-1)+"x", " ")...) }
	program := func(j *Job, s string) { command(j, s) }
	entry := func(j *Job, s string) { j.Entrypoint = []string{s} }
	split := func(j *Job, n int) {
		j.Entrypoint, j.Args = strings.Split(strings.Repeat("x", n), ""), make([]string, 1000)
	}
	dir := func(j *Job, d string) { j.WorkDir = d }
	network := func(j *Job, n runtime.Network) { j.Network = n }
	out := func(j *Job, p string) { j.Outputs = []Output{{p}} }
	in := func(j *Job, p string) { j.Inputs = []Input{{Source: "a", Path: p}} }
	wide := func(j *Job, n int) { j.Inputs = inputsIn("/data", n) }
	class := func(j *Job, c market.Class) { j.Resources.Class, j.Resources.PerUnit.VRAMMiB = c, 1 }
	capability := func(j *Job, c market.Capability) { j.Resources.Class, j.Resources.MinCapability = "gpu", c }
	image := func(j *Job, s string) { j.Image = s }
	user := func(j *Job, s string) { j.Registry = &Registry{Username: s, PasswordFrom: "env:P"} }
	from := func(j *Job, s string) { j.Registry = &Registry{Username: "u", PasswordFrom: s} }
	hooks := func(j *Job, n int) {
		j.Webhooks = nil
		for range n {
			j.Webhooks = append(j.Webhooks, Webhook{URL: "https://a"})
		}
	}
	checkEdges(t, containerJob, []edge{
		around("spec.health.interval", interval, MinTime, MinTime-1),
		around("spec.health.interval", interval, maxHealthTime, maxHealthTime+1),
		around("spec.health.timeout", timeout, MinTime, MinTime-1),
		around("spec.health.timeout", timeout, maxHealthTimeout, maxHealthTimeout+1),
		around("spec.health.startPeriod", period, 0, -1),
		around("spec.health.startPeriod", period, maxHealthTime, maxHealthTime+1),
		around("spec.health.retries", retries, 1, 0),
		around("spec.health.retries", retries, maxHealthRetries, maxHealthRetries+1),
		around("spec.health.http.path", page, "/"+strings.Repeat("x", 1023), "/"+strings.Repeat("x", 1024)),
		around("spec.health.http.path", page, "/?a=b", "a"),
		around("spec.health.http.path", page, "/~", "/é"),
		around("spec.health.http.path", page, "/%41", "/%4"),
		around("spec.health.command", size, maxHealthBytes, maxHealthBytes+1),
		around("spec.health.command", words, maxHealthArgs, maxHealthArgs+1),
		around("spec.health.command", program, "true", ""),
		{"none", health(func(h *Health) { h.TCP = 1 }), health(func(h *Health) { h.TCP = 0 }), "spec.health"},
		{"two", health(func(h *Health) { h.TCP = 1 }), health(func(h *Health) { h.Command = []string{"a"} }),
			"spec.health"},
		{"three", func(j *Job) { command(j, "a") }, health(func(h *Health) {
			h.Command, h.HTTP = []string{"a"}, &HTTPGet{Port: 1, Path: "/"}
		}), "spec.health"},
		{"a page and a port", func(j *Job) { page(j, "/") }, health(func(h *Health) {
			h.HTTP = &HTTPGet{Port: 1, Path: "/"}
		}), "spec.health"},
		around("spec.entrypoint[0]", entry, "x", ""),
		around("spec.args", split, 24, 25),
		around("spec.workDir", dir, "/app", "/app/"),
		around("spec.workDir", dir, "/"+strings.Repeat("x", MaxPath-1), "/"+strings.Repeat("x", MaxPath)),
		around("spec.network", network, runtime.NetworkInternet, "host"),
		around("spec.outputs[0].src", out, "/usr/share", "/usr"),
		around("spec.outputs[0].src", out, "/devices", "/dev/shm"),
		around("spec.inputs[0].dst", in, "/etc/x", "/etc"),
		around("spec.inputs[0].dst", in, "/process/1", "/proc/1"),
		around("spec.inputs", wide, runtime.MaxMounts-1, runtime.MaxMounts), // and the output
		around("spec.resources.class", class, "gpu/h100", "cpu"),
		around("spec.resources.gpus", capability, market.MaxCapability, market.MaxCapability+1),
		around("spec.image", image, "x:5000/"+testImage, strings.ToUpper(testImage)),
		around("spec.registryAuth.username", user, strings.Repeat("x", maxUsername), strings.Repeat("x",
			maxUsername+1)),
		around("spec.registryAuth.username", user, "u@h", "u:h"),
		around("spec.registryAuth.passwordFrom", from, "file:"+strings.Repeat("x", maxFrom),
			"file:"+strings.Repeat("x", maxFrom+1)),
		around("spec.webhooks", hooks, MaxWebhooks, MaxWebhooks+1),
	})
}

// Every rule of a cluster holds at its edge; a field of a job without meaning in one is refused.
func TestEdgesOfClusters(t *testing.T) {
	t.Parallel()
	size := func(j *Job, n uint32) { j.Count = n }
	idle := func(j *Job, d time.Duration) { j.Cluster.Autostop = Span(d) }
	command := func(j *Job, s string) { j.Cluster.Command = []string{s} }
	env := func(j *Job, k string) { j.Env = map[string]string{k: "1"} }
	secret := func(j *Job, n string) { j.Secrets = []Secret{{Name: n, From: "env:A"}} }
	class := func(j *Job, c cluster.Class) { j.Cluster.Network = c }
	engine := func(j *Job, n string) { j.Cluster.Engine = n }
	both := func(j *Job, c []string) { j.Cluster.Autostop, j.Cluster.Command = Span(MinAutostop), c }
	checkEdges(t, clusterJob, []edge{
		around("spec.count", size, cluster.MaxMembers, cluster.MaxMembers+1),
		around("spec.count", size, 1, 0),
		around("spec.autostop", idle, MinAutostop, MinAutostop-1),
		around("spec.autostop", idle, MaxRun, MaxRun+1),
		around("spec.autostop", idle, 0, -1),
		around("spec.autostop", both, nil, []string{"x"}),
		around("spec.command[0]", command, "x", ""),
		around("spec.env.MASTER_ADDR", env, "MASTER", "MASTER_ADDR"),
		around("spec.secrets", secret, "token", cluster.TokenFile),
		around("spec.placement.network", class, cluster.LAN, "dialup"),
		around("spec.engine", engine, "dask", "slurm"),
		{"module", size4, func(j *Job) { j.Module = "a.wasm" }, "spec.module"},
		{"args", size4, func(j *Job) { j.Args = []string{"a"} }, "spec.args"},
		{"entrypoint", size4, func(j *Job) { j.Entrypoint = []string{"a"} }, "spec.entrypoint"},
		{"rounds", size4, func(j *Job) { j.Rounds = &Rounds{Count: 1} }, "spec.rounds"},
		{"verify", size4, func(j *Job) { j.Verify = VerifyReplicate }, "spec.verify"},
		{"guardians", size4, func(j *Job) { j.Guardians = 3 }, "spec.guardians"},
	})
}

func size4(j *Job) { j.Count = 4 }

// A checked job is refused, with the reason, for each way in which two honest runs of it could differ.
func TestEdgesOfVerify(t *testing.T) {
	t.Parallel()
	valid := func(t *testing.T) Job {
		return complete(t, Job{Module: "a.wasm", Outputs: []Output{{"/out"}}, Verify: VerifyReplicate})
	}
	if per := valid(t).Resources.PerUnit; per.MemoryMiB != DefaultVerifyMemoryMiB ||
		per.DiskMiB != DefaultVerifyDiskMiB {
		t.Errorf("units of %+v", per)
	}
	nothing := func(*Job) {}
	memory := func(j *Job, n uint32) { j.Resources.Units, j.Resources.PerUnit.MemoryMiB = 2, n }
	disk := func(j *Job, n uint32) { j.Resources.Units, j.Resources.PerUnit.DiskMiB = 2, n }
	checkEdges(t, valid, []edge{
		around("spec.verify", memory, 1<<30, 1<<30+1),
		around("spec.verify", disk, 1<<30, 1<<30+1),
		around("spec.verify", memory, 1, 0),
		around("spec.verify", disk, 1, 0),
		{"no output", nothing, func(j *Job) { j.Outputs = nil }, "spec.verify"},
		{"rounds", nothing, func(j *Job) { j.Rounds = &Rounds{Count: 1} }, "spec.verify"},
		{"secrets", nothing, func(j *Job) { j.Secrets = secretsOf(1) }, "spec.verify"},
		{"scratch", nothing, func(j *Job) { j.ScratchMiB = 1 }, "spec.verify"},
		{"guardians", nothing, func(j *Job) { j.Guardians = 3 }, "spec.verify"},
		{"restarts", nothing, func(j *Job) { j.Restart.Policy = RestartAlways }, "spec.verify"},
		{"another way", nothing, func(j *Job) { j.Verify = "vote" }, "spec.verify"},
	})
}

// A cost that 64 bits cannot hold is refused, and a job that costs something has a budget.
func TestEdgesOfPayment(t *testing.T) {
	t.Parallel()
	set := func(price market.Price, budget market.Amount, decimals uint8, free bool) func(*Job) {
		return func(j *Job) { j.Payment = Payment{price, budget, decimals, free} }
	}
	const most, digits = 1<<64 - 1, market.MaxDecimals
	checkEdges(t, moduleJob, []edge{
		{"no price", set(1, 1, 6, false), set(0, 1, 6, false), "spec.payment.maxPrice"},
		{"no budget", set(1, 1, 6, false), set(1, 0, 6, false), "spec.payment.budget"},
		{"too high", set(most, most, 6, false), func(j *Job) { j.Count = 2; set(most, 0, 6, false)(j) },
			"spec.payment.maxPrice"},
		{"free with a price", set(0, 0, 6, true), set(1, 0, 6, true), "spec.payment.maxPrice"},
		{"free with a budget", set(0, 0, 6, true), set(0, 1, 6, true), "spec.payment.budget"},
		{"decimals", set(1, 1, digits, false), set(1, 1, digits+1, false), "payment.decimals"},
	})
}

// offered is a runtime with every ability that a job can use.
type offered struct {
	runtime.Runtime
	runtime.Attacher
	runtime.Dialer
	runtime.Images
}

// moduleRuntime is one without images.
type moduleRuntime struct{ runtime.Runtime }

// workloadOf is a rank's program as the buyer sends it.
func workloadOf(t interface{ Fatal(...any) }, j Job) *nodepb.Workload {
	c, err := workload.CIDOf(sign.Sum([]byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	w := &nodepb.Workload{Runtime: j.Runtime, Image: j.Image, Entrypoint: j.Entrypoint, Args: j.Args,
		WorkDir: j.WorkDir,
		Network: string(j.Network), Env: maps.Clone(j.Env), PullMillis: uint64(j.Timeouts.Pull.Milliseconds())}
	if j.Module != "" {
		w.Module = &nodepb.Blob{Cid: c.Bytes()}
	}
	for _, in := range j.Inputs {
		blob := &nodepb.Blob{Cid: c.Bytes(), Tree: j.Blobs[in.For(0)].Tree}
		w.Inputs = append(w.Inputs, &nodepb.Input{Blob: blob, Path: in.Path})
	}
	for _, out := range j.Outputs {
		w.Outputs = append(w.Outputs, out.Path)
	}
	if j.ScratchMiB > 0 {
		w.Scratch = ScratchPath
	}
	for _, v := range j.Volumes {
		w.Volumes = append(w.Volumes, &nodepb.VolumeMount{Lease: make([]byte, 32), Path: v.Path})
	}
	if h := j.Health; h != nil {
		millis := func(s Span) uint64 { return uint64(time.Duration(s).Milliseconds()) }
		w.Health = &nodepb.HealthCheck{IntervalMillis: millis(h.Interval), TimeoutMillis: millis(h.Timeout),
			Retries: h.Retries, StartMillis: millis(h.StartPeriod)}
		switch {
		case h.HTTP != nil:
			w.Health.Check = &nodepb.HealthCheck_Http{Http: &nodepb.HTTPGet{Port: uint32(h.HTTP.Port),
				Path: h.HTTP.Path}}
		case h.TCP != 0:
			w.Health.Check = &nodepb.HealthCheck_TcpPort{TcpPort: uint32(h.TCP)}
		default:
			w.Health.Check = &nodepb.HealthCheck_Command{Command: &nodepb.Command{Args: h.Command}}
		}
	}
	return w
}

// Safety: no job passes the buyer's rules that every provider refuses, for its leases would be paid and never used.
// Values are drawn from both sides of the bounds.
func TestProvidersTakeCheckedJobs(t *testing.T) {
	t.Parallel()
	host := workload.Host{
		Runtimes: map[string]runtime.Runtime{RuntimeWasm: moduleRuntime{}, RuntimeDocker: offered{}},
		Network:  egress.ModeInternet, Overlay: func(runtime.Runtime) error { return nil },
	}
	taken := 0
	span := func(name string) func(*rapid.T) Span {
		return func(t *rapid.T) Span {
			return Span(rapid.SampledFrom([]time.Duration{0, 1, time.Second, 4 * time.Minute, 6 * time.Minute,
				time.Hour,
				2 * time.Hour, 24 * time.Hour, 25 * time.Hour, 24*time.Hour + 1}).Draw(t, name))
		}
	}
	interval, timeout, period, pull := span("interval"), span("timeout"), span("start period"), span("pull")
	place := rapid.StringMatching(`(/etc|/dev|/proc|/usr/bin|/usr|/data|/run|/a|/b-c){1,2}(/x)?`)
	words := func(t *rapid.T, name string, n ...int) []string {
		args := strings.Split(strings.Repeat("x ", rapid.SampledFrom(n).Draw(t, name)), " ")
		args[0] = rapid.SampledFrom([]string{"", "x", strings.Repeat("x", maxHealthBytes),
			strings.Repeat("x", MaxText)}).Draw(t, name)
		return args
	}
	changes := []func(*rapid.T, *Job){
		func(t *rapid.T, j *Job) { j.Health.Interval = interval(t) },
		func(t *rapid.T, j *Job) { j.Health.Timeout = timeout(t) },
		func(t *rapid.T, j *Job) { j.Health.StartPeriod = period(t) },
		func(t *rapid.T, j *Job) { j.Health.TCP, j.Health.Command = 0, words(t, "command", 0, 1, 63, 64, 200) },
		func(t *rapid.T, j *Job) {
			page := rapid.StringMatching(`/[a-z é?%~\x7f\t]{0,3}`).Draw(t, "page")
			j.Health.TCP, j.Health.HTTP = 0, &HTTPGet{Port: 1, Path: page}
		},
		func(t *rapid.T, j *Job) { j.Entrypoint = words(t, "entrypoint", 0, 1, 2) },
		func(t *rapid.T, j *Job) {
			j.WorkDir = rapid.SampledFrom([]string{"", "/app", "app", "/a\x00", "/" + strings.Repeat("x",
				MaxPath)}).Draw(t,
				"directory")
		},
		func(t *rapid.T, j *Job) { j.Timeouts.Pull = time.Duration(pull(t)) },
		func(t *rapid.T, j *Job) { j.Args = words(t, "args", 0, 1020, 1022, 1023, 1024) },
		func(t *rapid.T, j *Job) {
			for i := range rapid.SampledFrom([]int{1, 2, 3, 4, 5}).Draw(t, "variables") {
				j.Env = many(i)
				for k := range j.Env {
					j.Env[k] = strings.Repeat("x", MaxText)
				}
			}
		},
		func(t *rapid.T, j *Job) {
			j.Blobs = map[string]Blob{}
			if j.Module != "" {
				j.Blobs[j.Module] = Blob{CID: testCID}
			}
			for i, p := range rapid.SliceOfN(place, 1, 3).Draw(t, "inputs") {
				in := Input{Source: fmt.Sprint("in", i), Path: p}
				j.Inputs, j.Blobs[in.Source] = append(j.Inputs, in), Blob{CID: testCID, Tree: rapid.Bool().Draw(t,
					"tree")}
			}
		},
		func(t *rapid.T, j *Job) {
			j.Inputs, j.Blobs = inputsIn("/many", rapid.IntRange(60, 70).Draw(t, "many")), nil
		},
		func(t *rapid.T, j *Job) { j.Outputs = []Output{{place.Draw(t, "output")}} },
		func(t *rapid.T, j *Job) { j.ScratchMiB = 1 },
		func(t *rapid.T, j *Job) {
			j.Volumes = nil
			for i, p := range rapid.SliceOfN(place, 1, 2).Draw(t, "volumes") {
				j.Volumes = append(j.Volumes, VolumeMount{Name: fmt.Sprint("v", i), Path: p})
			}
		},
	}
	rapid.Check(t, func(rt *rapid.T) {
		j := containerJob(t)
		if first := rapid.IntRange(0, 2).Draw(rt, "module"); first == 0 {
			j = moduleJob(t)
			j.Health = &Health{} // so that each change finds one
		}
		for range rapid.IntRange(1, 2).Draw(rt, "changes") {
			rapid.SampledFrom(changes).Draw(rt, "change")(rt, &j)
		}
		if j.Module != "" {
			j.Health, j.Entrypoint, j.WorkDir = nil, nil, ""
		}
		if j.Check() != nil {
			return
		}
		taken++
		if err := workload.Check(workloadOf(rt, j), host); err != nil {
			rt.Fatalf("the job is valid, and its providers refuse it: %v", err)
		}
		spec := runtime.Spec{ID: "x", Module: "/m", Image: j.Image, Dir: "/host/dir", Entrypoint: j.Entrypoint,
			Args:    j.Args,
			WorkDir: j.WorkDir, Env: j.Env}
		if j.Image != "" {
			spec.Module = ""
		}
		for _, m := range (workload.Stage{}).Mounts(workloadOf(rt, j)) {
			m.Host = "/host/mount"
			spec.Mounts = append(spec.Mounts, m)
		}
		if err := spec.Check(); err != nil {
			rt.Fatalf("the job is valid, and the runtime refuses it: %v", err)
		}
	})
	if taken == 0 {
		t.Error("no job that was drawn is valid")
	}
}
