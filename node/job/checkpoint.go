package job

import (
	"slices"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

// Checkpoint is the directory from which a rank's program continues after a move to another provider. The provider
// packs it while the program runs, and the buyer's peer and the job's guardians keep the last pack.
type Checkpoint struct {
	Path string `json:"path"`
	// Every is the interval between two packs at least. A directory that has not changed is not packed.
	Every Span `json:"every"`
}

const (
	// MinCheckpoint and MaxCheckpoint bound Checkpoint.Every.
	MinCheckpoint, MaxCheckpoint = time.Second, 24 * time.Hour
	// DefaultCheckpoint is Checkpoint.Every unless the job has another.
	DefaultCheckpoint = Span(5 * time.Minute)
	// DefaultCheckpointDiskMiB is the disk of each unit of a job with a checkpoint unless the job has another.
	DefaultCheckpointDiskMiB = 1024
)

func (c Checkpoint) withDefaults() *Checkpoint {
	if c.Every == 0 {
		c.Every = DefaultCheckpoint
	}
	return &c
}

// checkCheckpoint refuses a directory in which other files lie: a restored one has to be empty before.
func checkCheckpoint(j Job, ps *problems) {
	c := j.Checkpoint
	if c == nil {
		return
	}
	const field = "spec.checkpoint.path"
	taken := func(p string) bool { return overlap(p, c.Path) }
	if err := checkPath(c.Path); err != nil {
		ps.add(field, "%v", err)
	} else if j.Image != "" && runtime.HidesSystem(c.Path) {
		ps.add(field, hidesSystem, c.Path)
	} else if slices.ContainsFunc(j.Inputs, func(in Input) bool { return taken(in.Path) }) ||
		slices.ContainsFunc(j.Outputs, func(out Output) bool { return taken(out.Path) }) ||
		j.ScratchMiB > 0 && taken(ScratchPath) || j.Rounds != nil && j.Rounds.Carry != "" && taken(j.Rounds.Carry) {
		ps.add(field, "%s overlaps an input, an output or the scratch directory", c.Path)
	}
	if d := time.Duration(c.Every); d < MinCheckpoint || d > MaxCheckpoint {
		ps.add("spec.checkpoint.every", "%v, want %v to %v", d, MinCheckpoint, MaxCheckpoint)
	}
	if j.Resources.PerUnit.DiskMiB == 0 {
		ps.add("spec.resources.disk", "missing: the checkpoint and its two packs have to fit")
	}
}
