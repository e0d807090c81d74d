package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/volume"
)

// Engine is the container engine, which has to see the volumes that the peer mounts.
type Engine interface {
	// Pid returns the engine's process.
	Pid(ctx context.Context) (int, error)
}

// Volumes makes the volumes of this machine. The zero value makes some.
type Volumes struct {
	none error // why this machine has no volumes
}

// TryVolumes finds out why this machine has no volumes, if it has none. The engine must see them: otherwise it would
// mount the directory below.
func TryVolumes(ctx context.Context, e Engine, scratch string, log *slog.Logger) Volumes {
	pid, err := e.Pid(ctx)
	if err == nil {
		err = volume.Try(ctx, scratch, pid)
	}
	if err != nil {
		log.Warn("disk limits of containers are measured, not held by file systems of their own", "reason", err)
		return Volumes{none: fmt.Errorf("%w: %w", runtime.ErrNoVolume, err)}
	}
	return Volumes{}
}

// None returns the reason why this machine has no volumes, a runtime.ErrNoVolume, or nil if it has.
func (v Volumes) None() error { return v.none }

// Make makes dir a volume for the writable mounts of one execution. It returns runtime.ErrNoVolume if this machine has
// none: mounts given to Start are then measured.
func (v Volumes) Make(ctx context.Context, dir string, bytes int64) error {
	if v.none != nil {
		return v.none
	}
	err := volume.Make(ctx, dir, bytes)
	if errors.Is(err, volume.ErrNoRoom) {
		return fmt.Errorf("%w: %w", runtime.ErrNoRoom, err)
	}
	return err
}

// Release takes away the volumes at and below dir.
func (v Volumes) Release(dir string) error { return volume.Release(dir) }

// Held is the way in which writable mounts are held to their limit.
type Held struct {
	Device   uint64 // of the volume that all of them are in; 0: they are measured
	Size     guard.Volume
	Volume   string       // a directory in it
	Measured []string     // their directories
	Bytes    int64        // the limit
	Rooms    []guard.Room // mounts with limits of their own
	Devices  []uint64     // of these
}

// HoldRooms returns the writable mounts that have a limit of their own, of an execution with this directory, and their
// devices. It refuses one that is not in a file system of its own, of that size.
func HoldRooms(dir string, mounts []runtime.Mount) (out []guard.Room, devices []uint64, err error) {
	for _, m := range mounts {
		bytes := int64(m.RoomMiB) << 20
		if bytes == 0 || m.ReadOnly {
			continue
		}
		var own, in unix.Stat_t
		var size unix.Statfs_t
		if err := errors.Join(unix.Stat(dir, &own), unix.Stat(m.Host, &in), unix.Statfs(m.Host, &size)); err != nil {
			return nil, nil, err
		}
		if in.Dev == own.Dev || int64(size.Blocks)*int64(size.Bsize) > volume.KeptSize(bytes) {
			return nil, nil, fmt.Errorf("%s is not in a volume of %d MiB", m.Guest, m.RoomMiB)
		}
		held := guard.Volume{Blocks: size.Blocks, Files: size.Files}
		devices = append(devices, in.Dev)
		out = append(out, guard.Room{Dir: m.Guest, Volume: held, Bytes: bytes})
	}
	return out, devices, nil
}

// Hold finds out how the writable mounts of an execution are limited. A file system other than the directory's own, no
// larger than a volume, limits them itself. Other mounts are measured, and must not exceed the limit already.
func Hold(dir string, writable []string, bytes int64) (Held, error) {
	h := Held{Measured: writable, Bytes: bytes}
	if len(writable) == 0 {
		return h, nil
	}
	var own, first unix.Stat_t
	var size unix.Statfs_t
	err := errors.Join(unix.Stat(dir, &own), unix.Stat(writable[0], &first), unix.Statfs(writable[0], &size))
	if err != nil {
		return h, err
	}
	apart := first.Dev != own.Dev && int64(size.Blocks)*int64(size.Bsize) <= volume.Size(bytes)
	for _, w := range writable[1:] {
		var s unix.Stat_t
		if err := unix.Stat(w, &s); err != nil {
			return h, err
		}
		apart = apart && s.Dev == first.Dev
	}
	if apart {
		held := guard.Volume{Blocks: size.Blocks, Files: size.Files}
		return Held{Device: first.Dev, Size: held, Volume: writable[0], Bytes: bytes}, nil
	}
	used, err := Measure(writable, bytes)
	if err == nil && used.Over(bytes) {
		err = fmt.Errorf("writable mounts hold %d bytes and %d files, "+
			"more than the disk limit of %d bytes and %d files already",
			used.Bytes, used.Files, bytes, volume.Files(bytes))
	}
	return h, err
}

// HoldLayer adds the layer of an execution with this directory to the way in which its mounts are held. A layer has to
// be in a volume.
func HoldLayer(h Held, dir, layer string) (Held, error) {
	var own, in unix.Stat_t
	var size unix.Statfs_t
	if err := errors.Join(unix.Stat(dir, &own), unix.Stat(layer, &in), unix.Statfs(layer, &size)); err != nil {
		return h, err
	}
	if in.Dev == own.Dev || int64(size.Blocks)*int64(size.Bsize) > volume.Size(h.Bytes) {
		return h, fmt.Errorf("%s is not in a volume of %d bytes", layer, h.Bytes)
	}
	if h.Volume == "" {
		h.Volume, h.Device = layer, in.Dev
	}
	return h, nil
}

// Full reports whether a volume, named by a directory in it, has no room; "" names none.
func Full(dir string) bool {
	var s unix.Statfs_t
	if dir == "" || unix.Statfs(dir, &s) != nil {
		return false
	}
	// A write fails while there is a little room left: ext4 reserves more than a file finally takes.
	return int64(s.Bavail)*s.Bsize < 1<<20+int64(s.Blocks/256)*s.Bsize || s.Ffree == 0
}
