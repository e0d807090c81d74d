package job

import (
	"path"
	"slices"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job/names"
	"github.com/starling-network/starling/node/runtime"
)

// MaxVolumes bounds the volumes of one job.
const MaxVolumes = 8

// VolumeMount is a volume that a program finds at Path. The volume is a job of runtime RuntimeVolume with this name on
// the same peer.
type VolumeMount struct {
	Name     string `json:"name"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Lease is the volume's, and Provider keeps it. The peer that takes the job sets both.
	Lease    market.LeaseID `json:"lease,omitzero"`
	Provider sign.Key       `json:"provider,omitzero"`
}

// places are the directories of the program that its provider mounts beside volumes, as far as they are known before
// the upload.
func places(j Job) []string {
	at := written(j)
	for _, in := range j.Inputs {
		dir := in.Path
		if b := j.Blobs[in.For(0)]; len(j.Blobs) > 0 && !b.Tree {
			dir = path.Dir(dir)
		}
		at = append(at, dir)
	}
	if j.Rounds != nil && j.Rounds.Carry != "" {
		at = append(at, j.Rounds.Carry)
	}
	return outermost(j, at)
}

// written returns the directories that the program may write, but its volumes.
func written(j Job) (at []string) {
	for _, out := range j.Outputs {
		at = append(at, out.Path)
	}
	if j.ScratchMiB > 0 {
		at = append(at, ScratchPath)
	}
	if j.Checkpoint != nil {
		at = append(at, j.Checkpoint.Path)
	}
	return at
}

// outermost returns the mounts that have the directories of a program.
func outermost(j Job, at []string) []string {
	for i, p := range at {
		if j.Image == "" { // a module's are whole first elements
			first, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
			at[i] = "/" + first
		}
	}
	return runtime.Outermost(at)
}

// checkVolumes checks the volumes of a program.
func checkVolumes(j Job, ps *problems) {
	const field = "spec.volumes"
	if len(j.Volumes) > MaxVolumes {
		ps.add(field, "%d volumes, at most %d", len(j.Volumes), MaxVolumes)
		return
	}
	if len(j.Volumes) == 0 {
		return
	}
	taken := places(j)
	for i, v := range j.Volumes {
		at := field + "." + Printable(v.Name)
		switch err := checkPath(v.Path); {
		case !names.IsName(v.Name):
			ps.add(at, "not a volume's name: want 1 to %d of a-z, 0-9 and '-'", names.Max)
		case err != nil:
			ps.add(at, "%v", err)
		case j.Image != "" && runtime.HidesSystem(v.Path):
			ps.add(at, hidesSystem, v.Path)
		case slices.ContainsFunc(taken, func(p string) bool { return overlap(p, v.Path) }):
			ps.add(at, "%s overlaps the directory of an input, an output, the checkpoint or another volume", v.Path)
		case slices.ContainsFunc(j.Volumes[:i], func(o VolumeMount) bool { return o.Name == v.Name }):
			ps.add(at, "is listed twice")
		}
		taken = append(taken, v.Path)
	}
	if n := mounts(j) + len(j.Volumes); n > runtime.MaxMounts {
		ps.add(field, "files and volumes in %d directories, at most %d", n, runtime.MaxMounts)
	}
	for _, no := range []struct {
		broken bool
		why    string
	}{
		{j.Count != 1 || j.Cluster != nil, "a job with volumes has one rank: one program at a time writes to a volume"},
		{j.Verify != VerifyNone, "a result may depend on the volume, so nobody else can compute it"},
		{j.Guardians > 0, "the leases of a job with guardians are signed by a key of that job alone, which has no " +
			"volumes; write guardians: 0"},
	} {
		if no.broken {
			ps.add(field, "%s", no.why)
		}
	}
}

// checkVolume refuses fields of a program in a volume.
func checkVolume(j Job, ps *problems) {
	for _, only := range []struct {
		field string
		given bool
	}{
		{"spec.module", j.Module != ""}, {"spec.image", j.Image != ""}, {"spec.args", len(j.Args) > 0},
		{"spec.env", len(j.Env) > 0}, {"spec.entrypoint", len(j.Entrypoint) > 0}, {"spec.workDir", j.WorkDir != ""},
		{"spec.network", j.Network != runtime.NetworkNone}, {"spec.registryAuth", j.Registry != nil},
		{"spec.secrets", len(j.Secrets) > 0}, {"spec.health", j.Health != nil}, {"spec.shmSize", j.ShmMiB > 0},
		{"spec.outputs", len(j.Outputs) > 0}, {"spec.scratch", j.ScratchMiB > 0}, {"spec.copies", j.Copies != nil},
		{"spec.volumes", len(j.Volumes) > 0}, {"spec.rounds", j.Rounds != nil}, {"spec.verify", j.Verify != VerifyNone},
		{"spec.restart", j.Restart != Restart{}}, {"spec.standbys", j.Standbys > 0},
		{"spec.timeouts.start", j.Timeouts.Start > 0}, {"spec.checkpoint", j.Checkpoint != nil},
	} {
		if only.given {
			ps.add(only.field, "a volume has no program, and so none of this")
		}
	}
	if len(j.Inputs) > 1 || len(j.Inputs) == 1 && j.Blobs[j.Inputs[0].For(0)].Tree {
		ps.add("spec.inputs", "a volume keeps at most one, a file")
	}
	if j.Count != 1 {
		ps.add("spec.count", "%d, a volume has 1", j.Count)
	}
	if per := j.Resources.PerUnit; per != (market.Resources{DiskMiB: per.DiskMiB}) {
		ps.add("spec.resources", "a volume has disk alone")
	}
}
