package admission

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// listed are open jobs.
type listed []record.Job

func (l listed) Open() []record.Job { return l }

// volumeAt is a job that is a volume at a provider.
func volumeAt(name, key string, provider byte, started time.Time) record.Job {
	return record.Job{
		ID: "j" + name + key, Key: key, State: record.Running, Started: started,
		Spec: job.Job{Name: name, Runtime: job.RuntimeVolume, Timeouts: job.Timeouts{Run: time.Hour}},
		Ranks: []record.Rank{{
			State: record.RankRunning, Lease: market.LeaseID{provider, 1}, Provider: sign.Key{provider},
			Live: record.Live{Phase: "running"},
		}},
	}
}

// A job gets the lease and provider of its volumes from this peer's jobs, whatever it says itself.
func TestVolumes(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	pulling := volumeAt("young", "", 1, now)
	pulling.Ranks[0].Live.Phase = "pulling"
	waiting := volumeAt("waiting", "", 1, now)
	waiting.Ranks[0] = record.Rank{State: record.RankWaiting}
	stopping := volumeAt("stopping", "", 1, now)
	stopping.Stopping = true
	program := volumeAt("program", "", 1, now)
	program.Spec.Runtime = job.RuntimeWasm
	r := Rules{Jobs: listed{
		volumeAt("data", "", 1, now), volumeAt("near", "", 1, now), volumeAt("far", "", 2, now), pulling, waiting,
		stopping, program, volumeAt("theirs", "another key", 1, now),
	}}
	mount := func(names ...string) job.Job {
		j := job.Job{Name: "work", Runtime: job.RuntimeWasm, Timeouts: job.Timeouts{Run: time.Minute}}
		for _, n := range names {
			j.Volumes = append(j.Volumes, job.VolumeMount{
				Name: n, Path: "/" + n, Lease: market.LeaseID{9}, Provider: sign.Key{9},
			})
		}
		return j
	}
	spec := mount("data", "near")
	got, warning, err := r.Volumes(spec, "", now)
	if err != nil || warning != "" || got.Volumes[0].Lease != (market.LeaseID{1, 1}) ||
		got.Volumes[1].Provider != (sign.Key{1}) {
		t.Errorf("%+v, %q, %v", got.Volumes, warning, err)
	}
	if spec.Volumes[0].Lease != (market.LeaseID{9}) {
		t.Error("the caller's job was changed")
	}
	long := mount("data")
	long.Timeouts.Run = 2 * time.Hour
	if _, warning, err := r.Volumes(long, "", now); err != nil || !strings.Contains(warning, "is paid until") {
		t.Errorf("a job longer than its volume: %q, %v", warning, err)
	}
	elsewhere := mount("data")
	elsewhere.Placement.Only = []sign.Key{{2}}
	for what, c := range map[string]struct {
		spec  job.Job
		key   string
		cause string
	}{
		"unknown":                  {mount("none"), "", "there is none now"},
		"at two providers":         {mount("data", "far"), "", "it is at provider"},
		"at no accepted provider":  {elsewhere, "", "placement.only"},
		"not ready":                {mount("young"), "", "not ready"},
		"waiting":                  {mount("waiting"), "", "not ready"},
		"stopping":                 {mount("stopping"), "", "there is none now"},
		"a program":                {mount("program"), "", "there is none now"},
		"of another API key":       {mount("theirs"), "mine", "there is none now"},
		"of the peer, with a key":  {mount("data"), "mine", "there is none now"},
		"a second one of the name": {volumeAt("data", "", 1, now).Spec, "", "take another name"},
	} {
		_, _, err := r.Volumes(c.spec, c.key, now)
		if !errors.Is(err, record.ErrRefused) || !strings.Contains(err.Error(), c.cause) {
			t.Errorf("%s: %v, want %q", what, err, c.cause)
		}
	}
	for _, spec := range []job.Job{mount(), volumeAt("new", "", 1, now).Spec, volumeAt("stopping", "", 1, now).Spec} {
		if _, _, err := r.Volumes(spec, "", now); err != nil {
			t.Errorf("%s: %v", spec.Name, err)
		}
	}
}
