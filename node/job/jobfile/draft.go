package jobfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/starling-network/starling/node/job"
)

// Draft is the job of a template. The flags of `starling run` complete it: secrets, prices, the choice of providers,
// and changes of other fields. A draft is used once.
type Draft struct {
	file *file
}

// start returns the job to which flags are added: that of the draft, or else the program of the flags.
func (f Flags) start(d *Draft) job.Job {
	if d == nil {
		j := job.Job{Module: f.Module, Args: f.Args}
		if job.IsImage(f.Module) {
			j.Module, j.Image = "", asImage(f.Module)
		}
		return j
	}
	j := d.file.job
	if j.Cluster != nil && len(f.Args) > 0 {
		c := *j.Cluster
		c.Command = f.Args
		j.Cluster = &c
	} else if len(f.Args) > 0 {
		j.Args = f.Args
	}
	j.Inputs, j.Outputs = slices.Clip(j.Inputs), slices.Clip(j.Outputs)
	return j
}

// has reports whether a template has a field.
func (d *Draft) has(field string) bool { return d != nil && d.file.where[field] != nil }

// flagsAdd are fields to which flags add entries, and those that only flags have.
var flagsAdd = []string{"metadata.labels", "spec.env", "spec.inputs", "spec.outputs", "spec.secrets", "spec.webhooks",
	"spec.registryAuth", "spec.payment"}

// locate gives a problem the flag of its field, or its place in the template.
func (d *Draft) locate(p job.Problem, said map[string]bool) job.Problem {
	if d != nil && !said[p.Field] {
		byFlag := slices.ContainsFunc(flagsAdd, func(list string) bool { return strings.HasPrefix(p.Field, list) })
		if at := d.file.locate(p); at.Line > 0 && (d.has(at.Field) || !byFlag) {
			return at
		}
	}
	p.Field = flagFor(p.Field)
	return p
}

// with returns the entries of both maps, with those of the second for equal keys.
func with(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
