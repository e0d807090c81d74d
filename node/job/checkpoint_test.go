package job

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A checkpoint has a directory of its own, an interval and a disk to fit in.
func TestCheckpointRules(t *testing.T) {
	t.Parallel()
	base := Job{Module: "a.wasm", Payment: Payment{Free: true}, Checkpoint: &Checkpoint{Path: "/ckpt"}}
	said := func(field string) bool { return field == "spec.payment.budget" }
	good, err := base.Complete(said)
	if err != nil || good.Checkpoint.Every != DefaultCheckpoint ||
		good.Resources.PerUnit.DiskMiB != DefaultCheckpointDiskMiB {
		t.Fatalf("%+v, %v", good, err)
	}
	if base.Checkpoint.Every != 0 {
		t.Error("Complete changed the job that it was called on")
	}
	for name, c := range map[string]struct {
		field  string
		change func(j *Job)
	}{
		"relative":        {"spec.checkpoint.path", func(j *Job) { j.Checkpoint.Path = "ckpt" }},
		"root":            {"spec.checkpoint.path", func(j *Job) { j.Checkpoint.Path = "/" }},
		"unclean":         {"spec.checkpoint.path", func(j *Job) { j.Checkpoint.Path = "/a/../ckpt" }},
		"the runtime's":   {"spec.checkpoint.path", func(j *Job) { j.Checkpoint.Path = "/run/starling/x" }},
		"an output":       {"spec.checkpoint.path", func(j *Job) { j.Outputs = []Output{{"/ckpt/out"}} }},
		"in an output":    {"spec.checkpoint.path", func(j *Job) { j.Outputs, j.Checkpoint.Path = []Output{{"/out"}}, "/out/c" }},
		"an input":        {"spec.checkpoint.path", func(j *Job) { j.Inputs = []Input{{Source: "a", Path: "/ckpt/w.bin"}} }},
		"the scratch":     {"spec.checkpoint.path", func(j *Job) { j.ScratchMiB, j.Checkpoint.Path = 1, "/scratch/c" }},
		"the carry":       {"spec.checkpoint.path", func(j *Job) { j.Rounds = &Rounds{Count: 2, Carry: "/ckpt"} }},
		"a volume":        {"spec.volumes.data", func(j *Job) { j.Volumes = []VolumeMount{{Name: "data", Path: "/ckpt/d"}} }},
		"too often":       {"spec.checkpoint.every", func(j *Job) { j.Checkpoint.Every = Span(time.Second - 1) }},
		"never":           {"spec.checkpoint.every", func(j *Job) { j.Checkpoint.Every = Span(MaxCheckpoint + 1) }},
		"no disk":         {"spec.resources.disk", func(j *Job) { j.Resources.PerUnit.DiskMiB = 0 }},
		"checked results": {"spec.verify", func(j *Job) { j.Verify = VerifyReplicate }},
		"an image's own": {"spec.checkpoint.path", func(j *Job) {
			j.Image, j.Module, j.Runtime, j.Checkpoint.Path = "a:1", "", RuntimeDocker, "/usr"
		}},
	} {
		j := good
		c2 := *good.Checkpoint
		j.Checkpoint = &c2
		c.change(&j)
		err := j.Check()
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v, want a problem of %s", name, err, c.field)
		}
	}
}
