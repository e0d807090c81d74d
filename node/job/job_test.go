package job

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/runtime"
)

func TestMaxCostRoundsUp(t *testing.T) {
	t.Parallel()
	j := Job{Count: 3, Resources: Resources{Units: 2}, Timeouts: Timeouts{Run: time.Second}, Payment: Payment{MaxPrice: 1}}
	if got, err := j.MaxCost(); err != nil || got != 1 {
		t.Errorf("6 units for a second at 1 an hour cost %d, %v, want 1", got, err)
	}
	j.Timeouts.Run = 90 * time.Minute
	if got, err := j.MaxCost(); err != nil || got != 9 {
		t.Errorf("6 units for 1h30m at 1 an hour cost %d, %v, want 9", got, err)
	}
	j.Payment.MaxPrice = 1 << 63
	if _, err := j.MaxCost(); !errors.Is(err, market.ErrOverflow) {
		t.Errorf("got %v, want an overflow", err)
	}
}

// A rank's scratch room is divided among its units, beside the disk that each has, and their memory has room for /dev/shm.
func TestMinPerUnit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ disk, scratch, units, want uint32 }{
		{0, 0, 1, 0}, {16, 0, 3, 16}, {0, 100, 1, 100}, {16, 100, 1, 116}, {16, 100, 3, 50}, {16, 100, 0, 116},
		{1, math.MaxUint32, 1, math.MaxUint32}, {0, math.MaxUint32, 1, math.MaxUint32},
	} {
		j := Job{ScratchMiB: test.scratch, Resources: Resources{Units: test.units,
			PerUnit: market.Resources{MemoryMiB: 7, DiskMiB: test.disk}}}
		if got := j.MinPerUnit(); got != (market.Resources{MemoryMiB: 7, DiskMiB: test.want}) {
			t.Errorf("%+v: %+v", test, got)
		}
	}
	for _, test := range []struct{ memory, shm, units, want uint32 }{
		{7, 0, 1, 7}, {7, 5, 1, 7}, {0, 5, 1, 5}, {7, 20, 1, 20}, {7, 20, 2, 10}, {7, 21, 2, 11}, {7, 20, 3, 7}, {7, 20, 0, 20},
		{0, math.MaxUint32, 1, math.MaxUint32},
	} {
		j := Job{ShmMiB: test.shm, Resources: Resources{Units: test.units, PerUnit: market.Resources{MemoryMiB: test.memory}}}
		if got := j.MinPerUnit(); got != (market.Resources{MemoryMiB: test.want}) {
			t.Errorf("%+v: %+v", test, got)
		}
	}
}

// The units of a rank are listed with their least resources.
func TestUnitsText(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]market.Resources{
		"2 × cpu":                    {},
		"2 × cpu, at least 500m CPU": {MilliCPU: 500},
		"2 × cpu, at least 1500m CPU, 256 MiB memory, 81920 MiB GPU memory, 1024 MiB disk": {
			MilliCPU: 1500, MemoryMiB: 256, VRAMMiB: 81920, DiskMiB: 1024,
		},
	} {
		j := Job{Resources: Resources{Class: "cpu", Units: 2, PerUnit: r}}
		if got := j.UnitsText(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := (Job{ScratchMiB: 9, Resources: Resources{Class: "cpu", Units: 2}}).UnitsText(); got != "2 × cpu, at least 5 MiB disk" {
		t.Errorf("with scratch room: %q", got)
	}
}

func TestBlobs(t *testing.T) {
	t.Parallel()
	j := fullJob(t)
	if j.Uploaded() {
		t.Error("a job file has no contents")
	}
	j = j.In("/jobs")
	sources := j.Sources()
	if want := "/jobs/build/lm.wasm /jobs/shards/0.bin /jobs/shards/1.bin /jobs/shards/2.bin /jobs/shards/3.bin /jobs/shards/4.bin"; strings.Join(sources, " ") != want {
		t.Errorf("sources are %q", sources)
	}
	if got := j.Inputs[0].For(3); got != "/jobs/shards/3.bin" {
		t.Errorf("rank 3 reads %q", got)
	}
	const cid = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
	blobs := map[string]Blob{}
	for i, s := range sources {
		if _, err := j.WithBlobs(blobs); i > 0 && !errors.Is(err, ErrInvalid) {
			t.Errorf("with %d of %d sources: %v, want ErrInvalid", i, len(sources), err)
		}
		blobs[s] = Blob{CID: cid, Size: int64(i)}
	}
	whole, err := j.WithBlobs(blobs)
	if err != nil || !whole.Uploaded() {
		t.Fatalf("with all sources: %v", err)
	}
	if j.Uploaded() {
		t.Error("WithBlobs changed the job it was called on")
	}
	again := roundTrip(t, whole)
	if !reflect.DeepEqual(whole, again) {
		t.Errorf("got %+v back for %+v", again, whole)
	}
	blobs["stray"] = Blob{CID: cid}
	if _, err := j.WithBlobs(blobs); !errors.Is(err, ErrInvalid) {
		t.Errorf("with a stray entry: %v, want ErrInvalid", err)
	}
	delete(blobs, "stray")
	for _, bad := range []Blob{{CID: "Qm"}, {CID: cid, Size: -1}, {CID: "QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n"}, {CID: cid, Tree: true}} {
		blobs[j.Module] = bad
		if _, err := j.WithBlobs(blobs); !errors.Is(err, ErrInvalid) {
			t.Errorf("with the module as %+v: %v, want ErrInvalid", bad, err)
		}
	}
}

func TestUnmarshalIsStrict(t *testing.T) {
	t.Parallel()
	good, err := Marshal(fullJob(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"nothing":       "",
		"null":          "null",
		"unknown field": strings.Replace(string(good), `"name"`, `"nam"`, 1),
		"inner field":   strings.Replace(string(good), `"queue"`, `"que"`, 1),
		"two values":    string(good) + "{}",
		"truncated":     string(good[:len(good)-1]),
		"no time":       strings.Replace(string(good), `"30s"`, `"soon"`, 1),
		"no ranks":      strings.Replace(string(good), `"count":5`, `"count":0`, 1),
		"float money":   strings.Replace(string(good), `"maxPrice":1000000`, `"maxPrice":0.05`, 1),
		"too long":      strings.Repeat(" ", MaxEncoded) + string(good),
	} {
		if got, err := Unmarshal([]byte(bad)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %+v, %v, want ErrInvalid", name, got, err)
		}
	}
	if _, err := Marshal(Job{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an empty job: %v, want ErrInvalid", err)
	}
}

// fullJob is a job of five ranks with a field of most kinds.
func fullJob(t testing.TB) Job {
	return complete(t, Job{
		Module: "build/lm.wasm", Args: []string{"train"}, Env: map[string]string{"SEED": "1"}, Count: 5,
		Inputs: []Input{{Source: "shards/{rank}.bin", Path: "/data/shard.bin"}}, Outputs: []Output{{"/out"}},
		Timeouts: Timeouts{Queue: 30 * time.Second, Run: 10 * time.Minute},
	}, "spec.count", "spec.timeouts.queue", "spec.timeouts.run")
}

// jobs draws valid jobs.
func jobs() *rapid.Generator[Job] {
	name := rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?`)
	text := rapid.StringMatching(`[ -~é世]{0,30}`)
	source := rapid.StringMatching(`[a-z0-9]{1,8}(/[a-z]{1,5})?\.bin`)
	return rapid.Custom(func(t *rapid.T) Job {
		j := Job{
			Name: name.Draw(t, "name"), Runtime: RuntimeWasm, Module: source.Draw(t, "module"),
			Labels: rapid.MapOfN(rapid.StringMatching(`[a-zA-Z][a-z./_-]{0,10}`), text, 0, 3).Draw(t, "labels"),
			Env:    rapid.MapOfN(rapid.StringMatching(`[A-RT-Z_][A-Z0-9_]{0,10}`), text, 0, 3).Draw(t, "env"),
			Args:   rapid.SliceOfN(text, 0, 4).Draw(t, "args"),
			Count:  rapid.Uint32Range(1, MaxRank).Draw(t, "count"),
			Resources: Resources{Class: DefaultClass, Units: rapid.Uint32Range(1, 16).Draw(t, "units"),
				PerUnit: market.Resources{MilliCPU: rapid.Uint32().Draw(t, "cpu"), MemoryMiB: rapid.Uint32().Draw(t, "memory")}},
			Placement: Placement{Pack: rapid.Bool().Draw(t, "pack"), GossipOnly: rapid.Bool().Draw(t, "gossip"),
				Regions: rapid.SliceOfNDistinct(rapid.Map(name, func(s string) market.Region { return market.Region(s) }), 0, 3, rapid.ID).Draw(t, "regions")},
			Restart:  Restart{Max: rapid.IntRange(0, MaxRestart).Draw(t, "restart")},
			Timeouts: Timeouts{Queue: time.Duration(rapid.Int64Range(int64(MinTime), int64(MaxQueue)).Draw(t, "queue")), Run: time.Duration(rapid.Int64Range(int64(MinTime), int64(MaxRun)).Draw(t, "run"))},
			Payment: Payment{MaxPrice: market.Price(rapid.Uint64Min(1).Draw(t, "price")), Budget: market.Amount(rapid.Uint64Min(1).Draw(t, "budget")),
				Decimals: rapid.Uint8Max(market.MaxDecimals).Draw(t, "decimals")},
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "inputs") {
			j.Inputs = append(j.Inputs, Input{Source: "in/{rank}/" + source.Draw(t, "input"), Path: fmt.Sprintf("/in/%d", i)})
		}
		if rapid.Bool().Draw(t, "rounds") {
			j.Outputs = []Output{{Path: "/out"}}
			j.Rounds = &Rounds{Count: rapid.Uint32Range(1, MaxRounds).Draw(t, "count"), Carry: "/carry",
				Reduce: &Reduce{Module: source.Draw(t, "reduce"), Args: rapid.SliceOfN(text, 0, 2).Draw(t, "reduce args")}}
		}
		if rapid.Bool().Draw(t, "exclude") {
			j.Placement.Exclude = []sign.Key{sign.NewPrivate([32]byte{rapid.Byte().Draw(t, "key")}).Key()}
		}
		if rapid.Bool().Draw(t, "container") {
			container(t, &j)
			if rapid.Bool().Draw(t, "cluster") {
				clustered(t, &j)
			}
		}
		return normal(j)
	})
}

// container makes the job one of a container with what only that has.
func container(t *rapid.T, j *Job) {
	span := rapid.Map(rapid.Int64Range(int64(MinTime), int64(MaxBackoff)), func(n int64) Span { return Span(n) })
	j.Runtime, j.Module, j.Image = RuntimeDocker, "", "acme/x@sha256:"+strings.Repeat("0a", 32)
	j.Entrypoint = rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,5}`), 0, 2).Draw(t, "entrypoint")
	j.WorkDir = rapid.SampledFrom([]string{"", "/app"}).Draw(t, "dir")
	j.Network = rapid.SampledFrom([]runtime.Network{runtime.NetworkNone, runtime.NetworkInternet}).Draw(t, "network")
	j.Resources = rapid.SampledFrom([]Resources{j.Resources, {Class: "gpu", Units: 2}, {Class: "gpu/h100", Units: 1, MinCapability: 90, PerUnit: market.Resources{VRAMMiB: 5}, Unproven: true}}).Draw(t, "gpus")
	j.Registry = rapid.SampledFrom([]*Registry{nil, {Docker: true}, {Username: "u", PasswordFrom: "env:P"}}).Draw(t, "registry")
	if rapid.Bool().Draw(t, "secret") {
		j.Secrets = []Secret{{Name: "a", From: "env:A"}, {Name: "b", Env: "RSECRET", From: "file:b"}, {Name: "c", File: "d", From: "env:C"}}
		delete(j.Env, "RSECRET")
	}
	if rapid.Bool().Draw(t, "health") {
		j.Health = &Health{Interval: span.Draw(t, "interval"), Timeout: span.Draw(t, "timeout"), Retries: rapid.Uint32Range(1, 100).Draw(t, "retries"), TCP: 80}
	}
	if rapid.Bool().Draw(t, "restart") {
		j.Restart.Policy, j.Restart.Backoff = RestartOnFailure, span.Draw(t, "backoff")
	}
	j.Keep, j.Timeouts.Pull, j.Timeouts.Stop = span.Draw(t, "keep"), time.Duration(span.Draw(t, "pull")), time.Duration(span.Draw(t, "stop"))
	if rapid.Bool().Draw(t, "hook") {
		j.Webhooks = []Webhook{{URL: "https://example.org/x", Events: []string{"failed"}, SecretFrom: "env:H"}}
	}
}

// clustered makes a container's job a cluster.
func clustered(t *rapid.T, j *Job) {
	c := &Cluster{Engine: rapid.SampledFrom(cluster.Names()).Draw(t, "engine"), Command: rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,5}`), 0, 2).Draw(t, "command")}
	e := cluster.Engines[c.Engine]
	if len(c.Command) == 0 && !e.Serves {
		c.Command = []string{"x"}
	}
	if c.Serves() {
		c.Autostop = rapid.SampledFrom([]Span{0, Span(MinAutostop), Span(MaxRun)}).Draw(t, "autostop")
	}
	if c.Engine == "torchrun" && rapid.Bool().Draw(t, "seldom") {
		c.Options = map[string]string{"sync": "seldom", "minNodes": "1"}
	}
	c.Network = rapid.SampledFrom([]cluster.Class{cluster.LAN, cluster.Metro, e.With(c.Options).Needs}).Draw(t, "class")
	j.Cluster, j.Count = c, 1+j.Count%cluster.MaxMembers
	j.Args, j.Entrypoint, j.Health, j.Rounds = nil, nil, nil, nil
}

func roundTrip(t interface{ Fatal(...any) }, j Job) Job {
	b, err := Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func TestJSONKeepsEveryJob(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := jobs().Draw(t, "job")
		if again := roundTrip(t, j); !reflect.DeepEqual(j, again) {
			t.Fatalf("got %+v back for %+v", again, j)
		}
	})
}

// FuzzUnmarshal: what is accepted is written and read back equal.
func FuzzUnmarshal(f *testing.F) {
	b, err := Marshal(fullJob(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := Unmarshal(data)
		if err != nil {
			return
		}
		if again := roundTrip(t, j); !reflect.DeepEqual(j, again) {
			t.Fatalf("got %+v back for %+v", again, j)
		}
	})
}

// Values show nothing, whatever they are printed with.
func TestValuesPrintAsNothing(t *testing.T) {
	t.Parallel()
	v := Values{Secrets: map[string][]byte{"a": []byte("hunter2")}, Username: "hunter2", Password: "hunter2", Webhooks: map[int][]byte{0: []byte("hunter2")}}
	text := fmt.Sprintf("%v %+v %#v %s %q %x %v", v, v, v, v, v, v, fmt.Errorf("x: %v", &v))
	if strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", "hunter2")) {
		t.Error(text)
	}
}

func TestValuesFitTheJob(t *testing.T) {
	t.Parallel()
	j := Job{
		Secrets:  []Secret{{Name: "a", From: "env:A"}, {Name: "b", Env: "B", From: "env:B"}},
		Registry: &Registry{Username: "u", PasswordFrom: "env:P"},
		Webhooks: []Webhook{{URL: "https://a"}, {URL: "https://b", SecretFrom: "env:H"}},
	}
	good := func() Values {
		return Values{Secrets: map[string][]byte{"a": {0}, "b": []byte("x")}, Username: "u", Password: "p", Webhooks: map[int][]byte{1: []byte("k")}}
	}
	if err := good().CheckFor(j); err != nil {
		t.Fatal(err)
	}
	if err := (Values{}).CheckFor(Job{}); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Values){
		"missing":     func(v *Values) { delete(v.Secrets, "a") },
		"more":        func(v *Values) { v.Secrets["c"] = nil },
		"no text":     func(v *Values) { v.Secrets["b"] = []byte{0} },
		"large":       func(v *Values) { v.Secrets["a"] = make([]byte, 1<<20) },
		"no password": func(v *Values) { v.Password = "" },
		"no hook":     func(v *Values) { v.Webhooks = nil },
		"other hook":  func(v *Values) { v.Webhooks[0] = []byte("x") },
	} {
		v := good()
		change(&v)
		if err := v.CheckFor(j); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if (Values{Password: "x"}).CheckFor(Job{}) == nil {
		t.Error("credentials that nobody asked for are taken")
	}
}
