package admission

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// Jobs lists the jobs of this peer.
type Jobs interface {
	// Open returns the jobs that have not ended.
	Open() []record.Job
}

// Volumes returns the job with the leases and the provider of its volumes, which are running jobs of the same API key.
// It returns a warning if one of them may end before the job. It refuses a second volume of one name.
func (b Rules) Volumes(spec job.Job, key string, now time.Time) (_ job.Job, warning string, err error) {
	if len(spec.Volumes) == 0 && spec.Runtime != job.RuntimeVolume {
		return spec, "", nil
	}
	refused := func(name, format string, args ...any) error {
		return fmt.Errorf("%w: volume %.80s: %s", record.ErrRefused, name, fmt.Sprintf(format, args...))
	}
	open := b.Jobs.Open()
	if spec.Runtime == job.RuntimeVolume {
		if v := volume(open, spec.Name, key); v != nil {
			return spec, "", refused(spec.Name, "job %s is a volume of this name: take another name", v.ID)
		}
		return spec, "", nil
	}
	spec.Volumes = slices.Clone(spec.Volumes)
	for i := range spec.Volumes {
		m := &spec.Volumes[i]
		v := volume(open, m.Name, key)
		if v == nil {
			return spec, "", refused(m.Name, "there is none now; `starling volume ls` lists the volumes, and "+
				"`starling volume create` makes one")
		}
		r := v.Ranks[0]
		if !r.Runs() {
			return spec, "", refused(m.Name, "not ready: %s", v.Summary())
		}
		m.Lease, m.Provider = r.Lease, r.Provider
		if first := spec.Volumes[0]; m.Provider != first.Provider {
			return spec, "", refused(m.Name, "it is at provider %s, and volume %s at %s", m.Provider, first.Name,
				first.Provider)
		}
		if only := spec.Placement.Only; len(only) > 0 && !slices.Contains(only, m.Provider) {
			return spec, "", refused(m.Name, "it is at provider %s, which placement.only does not list", m.Provider)
		}
		if until := v.Until(); until.Before(now.Add(spec.Timeouts.Run)) {
			warning = fmt.Sprintf("volume %s is paid until %s: a program that uses it ends then; `starling volume "+
				"extend %[1]s` gives it more time", m.Name, until.Local().Format(time.DateTime))
		}
	}
	return spec, warning, nil
}

// volume returns the open job that is the volume of a name, or nil.
func volume(open []record.Job, name, key string) *record.Job {
	for i, j := range open {
		ending := j.State == record.Settling || j.Stopping
		if j.Spec.Runtime == job.RuntimeVolume && j.Spec.Name == name && len(j.Ranks) == 1 && !ending &&
			(key == "" || j.Key == key) {
			return &open[i]
		}
	}
	return nil
}
