package jobfile

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job"
)

// The flags of a volume make a job of whole units with room for its size.
func TestForVolume(t *testing.T) {
	t.Parallel()
	for size, units := range map[string]uint32{
		"1Mi": 1, "10Gi": 1, "10241Mi": 2, "20Gi": 2, "1Ti": 103, "10240Gi": 1024,
	} {
		f, err := Flags{Name: "data", Run: "12h", MaxPrice: "0.01"}.ForVolume(size)
		if err != nil {
			t.Errorf("%s: %v", size, err)
			continue
		}
		j, err := f.Job(token)
		if err != nil {
			t.Errorf("%s: %v", size, err)
			continue
		}
		want := job.Resources{
			Class: market.Disk, Units: units, PerUnit: market.Resources{DiskMiB: market.DiskUnitMiB}, Unproven: true,
		}
		if j.Resources != want || j.Runtime != job.RuntimeVolume || j.Timeouts.Run != 12*time.Hour {
			t.Errorf("%s: %+v for %v", size, j.Resources, j.Timeouts.Run)
		}
	}
	for _, size := range []string{"", "0Gi", "x", "10", "10241Gi", "-1Gi"} {
		if f, err := (Flags{}).ForVolume(size); err == nil {
			t.Errorf("%q: %+v", size, f)
		}
	}
}

// A volume has room for its size and no unit more than it needs.
func TestForVolumeRooms(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		mib := rapid.Uint64Range(1, market.MaxUnitsPerLease*market.DiskUnitMiB).Draw(t, "MiB")
		f, err := Flags{}.ForVolume(fmt.Sprintf("%dMi", mib))
		if err != nil {
			t.Fatal(err)
		}
		var units uint64
		if _, err := fmt.Sscan(f.Units, &units); err != nil {
			t.Fatal(err)
		}
		if room := units * market.DiskUnitMiB; room < mib || room-mib >= market.DiskUnitMiB {
			t.Fatalf("%d units for %d MiB", units, mib)
		}
	})
}

// A job file names volumes by a mapping, in any order.
func TestVolumesOfFile(t *testing.T) {
	t.Parallel()
	parse := func(volumes string) (job.Job, error) {
		return Parse([]byte("apiVersion: v1\nkind: Job\nspec:\n  module: a.wasm\n  volumes: "+volumes+
			"\n  payment: {maxPrice: 1}\n"), token)
	}
	j, err := parse(`{model: "/model:ro", data: /data}`)
	want := []job.VolumeMount{{Name: "data", Path: "/data"}, {Name: "model", Path: "/model", ReadOnly: true}}
	if err != nil || !reflect.DeepEqual(j.Volumes, want) {
		t.Errorf("%+v, %v", j.Volumes, err)
	}
	for text, problem := range map[string]string{
		"[data]": "volumes", "{data: data}": "not a clean absolute path", "{Data: /data}": "not a volume's name",
		"{a: /x, b: /x/y}": "overlaps", "{data: [/data]}": "volumes.data",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %q", text, err, problem)
		}
	}
}

// A mount of the provider's own files is refused, and the engine's socket by any name.
func TestAttackHostVolumes(t *testing.T) {
	t.Parallel()
	for text, problem := range map[string]string{
		"/:/host": "not possible", "./data:/data": "not possible", "~/x:/x": "not possible", "data": "not possible",
		"x:/var/run/docker.sock": "docker.sock", "../x:/x": "not possible", "data:data": "clean absolute path",
		"DATA:/data": "not a volume's name",
	} {
		_, err := Flags{Module: "a.wasm", MaxPrice: "1", Volumes: []string{text}}.Job(token)
		if problem == "docker.sock" {
			problem = "socket"
		}
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %q", text, err, problem)
		}
	}
}
