package workload

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
)

// checkStored refuses a volume with fields of a program. Its one input, if any, is a file that the provider keeps
// beside the directory and sends to the volume's owner.
func checkStored(w *nodepb.Workload) error {
	bare := &nodepb.Workload{
		Runtime: w.Runtime, Env: w.Env, DiskMib: w.DiskMib, PullMillis: w.PullMillis, KeepMillis: w.KeepMillis,
		WallMillis: w.WallMillis, VolumeOwner: w.VolumeOwner, Inputs: w.Inputs,
	}
	if n := len(w.Inputs); n > 1 || n == 1 && w.Inputs[0].GetBlob().GetTree() {
		return Bad("volume: got %d inputs, want at most one, a file", n)
	}
	if n := len(w.VolumeOwner); n != 0 && n != len(sign.Key{}) {
		return Bad("volume_owner: %d bytes, want %d or none", n, len(sign.Key{}))
	}
	if !proto.Equal(w, bare) || w.WallMillis > 0 {
		return Bad("a volume has no program, files, secrets, health check, volumes, cluster or time limit")
	}
	return nil
}

// checkVolumes checks the places of volumes. The hook of volumes checks their leases.
func checkVolumes(w *nodepb.Workload, rt runtime.Runtime) error {
	if _, stores := rt.(runtime.Storer); !stores && len(w.VolumeOwner) > 0 {
		return Bad("volume_owner: only a volume has one")
	}
	if len(w.Volumes) > maxVolumes {
		return Bad("%d volumes, at most %d", len(w.Volumes), maxVolumes)
	}
	taken := mountPoints(w)
	for _, v := range w.Volumes {
		if len(v.GetLease()) != len(market.LeaseID{}) {
			return Bad("volume: lease id is not 32 bytes")
		}
		if err := checkPath(v.GetPath()); err != nil {
			return Bad("volume: %v", err)
		}
		if w.Image != "" && runtime.HidesSystem(v.Path) {
			return Bad("%s: a volume there would hide the image's own %[1]s; use a separate directory, such as /data",
				v.Path)
		}
		if slices.ContainsFunc(taken, func(m string) bool { return within(v.Path, m) || within(m, v.Path) }) {
			return Bad("volume %s: an input, output or another volume is there", v.Path)
		}
		taken = append(taken, v.Path)
	}
	if len(taken) > runtime.MaxMounts {
		return Bad("files and volumes in %d directories, at most %d", len(taken), runtime.MaxMounts)
	}
	if len(w.Volumes) > 0 && w.Seed != 0 {
		return Bad("seed: a result would depend on a volume")
	}
	return nil
}

// checkCheckpoint checks the place of a checkpoint, which no other file has but the tree to continue from, and its
// interval.
func checkCheckpoint(w *nodepb.Workload) error {
	c := w.Checkpoint
	if c == nil {
		return nil
	}
	if err := checkPath(c.Path); err != nil {
		return Bad("checkpoint: %v", err)
	}
	taken := func(p string) bool { return within(p, c.Path) || within(c.Path, p) }
	from := 0
	for _, in := range w.Inputs {
		if in.Path == c.Path && in.GetBlob().GetTree() && from == 0 {
			from++
		} else if taken(in.Path) {
			return Bad("checkpoint %s: input %s is there", c.Path, in.Path)
		}
	}
	if slices.ContainsFunc(w.Outputs, taken) || w.Scratch != "" && taken(w.Scratch) {
		return Bad("checkpoint %s: an output or the scratch directory is there", c.Path)
	}
	if ms := c.EveryMillis; ms < uint64(MinCheckpoint/time.Millisecond) || ms > uint64(MaxCheckpoint/time.Millisecond) {
		return Bad("checkpoint: interval of %d ms, want %v to %v", c.EveryMillis, MinCheckpoint, MaxCheckpoint)
	}
	if w.Seed != 0 {
		return Bad("seed: a result would depend on the times of checkpoints")
	}
	return nil
}
