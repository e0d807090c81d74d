package job

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// volumeJob is a valid volume of 20 GiB.
func volumeJob(t *testing.T) Job {
	return complete(t, Job{Name: "data", Resources: Resources{Class: market.Disk, Units: 2}}, "metadata.name")
}

// A volume has no fields of a program, and is by its class.
func TestVolumeJobs(t *testing.T) {
	t.Parallel()
	j := volumeJob(t)
	if j.Runtime != RuntimeVolume || !j.Resources.Unproven || j.Restart.Max != 0 || j.Probes != ProbesOff {
		t.Errorf("the defaults of a volume: %+v", j)
	}
	if cost, err := j.MaxCost(); err != nil || cost != 2_000_000 {
		t.Errorf("two units for an hour cost %d, %v", cost, err)
	}
	b, err := Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Unmarshal(b); err != nil || fmt.Sprint(again) != fmt.Sprint(j) {
		t.Errorf("read as %v, %v", again, err)
	}
	for field, change := range map[string]func(*Job){
		"spec.module": func(j *Job) { j.Module = "a.wasm" }, "spec.image": func(j *Job) { j.Image = testImage },
		"spec.args": func(j *Job) { j.Args = []string{"x"} }, "spec.env": func(j *Job) { j.Env = many(1) },
		"spec.outputs":         func(j *Job) { j.Outputs = []Output{{"/out"}} },
		"spec.inputs":          func(j *Job) { j.Inputs = inputsIn("/data", 2) },
		"spec.scratch":         func(j *Job) { j.ScratchMiB = 1 },
		"spec.count":           func(j *Job) { j.Count = 2 },
		"spec.restart":         func(j *Job) { j.Restart.Max = 1 },
		"spec.standbys":        func(j *Job) { j.Guardians, j.Standbys = 3, 1 },
		"spec.resources":       func(j *Job) { j.Resources.PerUnit.MemoryMiB = 1 },
		"spec.volumes":         func(j *Job) { j.Volumes = []VolumeMount{{Name: "a", Path: "/a"}} },
		"spec.resources.class": func(j *Job) { j.Resources.Class = "cpu" },
	} {
		j := volumeJob(t)
		change(&j)
		if err := j.Check(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if guarded := j.Guarded(3); guarded.Standbys != 0 || guarded.Check() != nil {
		t.Errorf("with guardians: %d standbys, %v", guarded.Standbys, guarded.Check())
	}
	program := moduleJob(t)
	program.Resources.Class = market.Disk
	if err := program.Check(); err == nil || !strings.Contains(err.Error(), "spec.resources.class") {
		t.Errorf("a program on disk: %v", err)
	}
}

// The rules of a program's volumes hold at their edges.
func TestEdgesOfVolumes(t *testing.T) {
	t.Parallel()
	mount := func(j *Job, p string) { j.Volumes = []VolumeMount{{Name: "data", Path: p}} }
	title := func(j *Job, s string) { j.Volumes = []VolumeMount{{Name: s, Path: "/data"}} }
	number := func(j *Job, n int) {
		j.Volumes = nil
		for i := range n {
			j.Volumes = append(j.Volumes, VolumeMount{Name: fmt.Sprint("v", i), Path: fmt.Sprint("/v", i)})
		}
	}
	second := func(j *Job, p string) {
		j.Volumes = []VolumeMount{{Name: "a", Path: "/a/b"}, {Name: "data", Path: p}}
	}
	count := func(j *Job, n uint32) { mount(j, "/data"); j.Count = n }
	checkEdges(t, moduleJob, []edge{
		around("spec.volumes.data", mount, "/data", "data"),
		around("spec.volumes.data", mount, "/outs", "/out/x"), // the output
		around("spec.volumes.data", mount, "/runs", "/run/x"),
		around("spec.volumes.data", second, "/a/c", "/a/b/c"),
		around("spec.volumes.", title, "data", ""),
		around("spec.volumes", number, MaxVolumes, MaxVolumes+1),
		around("spec.volumes", count, 1, 2),
	})
	checkEdges(t, containerJob, []edge{around("spec.volumes.data", mount, "/data", "/usr/bin")})
	j := moduleJob(t)
	mount(&j, "/data")
	j.Guardians, j.Standbys = 3, 1
	if err := j.Check(); err == nil || !strings.Contains(err.Error(), "spec.volumes") {
		t.Errorf("with guardians: %v", err)
	}
}

// A job with volumes is for the provider that keeps them, whatever else it lists.
func TestProviders(t *testing.T) {
	t.Parallel()
	j := moduleJob(t)
	if got := j.Providers(); got != nil {
		t.Errorf("any: %v", got)
	}
	j.Placement.Only = []sign.Key{{1}, {2}}
	if got := j.Providers(); len(got) != 2 {
		t.Errorf("listed: %v", got)
	}
	j.Volumes = []VolumeMount{{Name: "data", Path: "/data", Provider: sign.Key{3}}}
	if got := j.Providers(); len(got) != 1 || got[0] != (sign.Key{3}) {
		t.Errorf("of a volume: %v", got)
	}
	only := func(j *Job, n int) { j.Placement.Only = keys(n) }
	checkEdges(t, moduleJob, []edge{
		around("spec.placement.only", only, market.MaxExclude, market.MaxExclude+1),
		around("spec.placement.only[1]", func(j *Job, same bool) {
			if j.Placement.Only = keys(2); same {
				j.Placement.Only[1] = j.Placement.Only[0]
			}
		}, false, true),
	})
	if d := volumeJob(t).Timeouts.Run; d != time.Hour {
		t.Errorf("the default time is %v", d)
	}
}
