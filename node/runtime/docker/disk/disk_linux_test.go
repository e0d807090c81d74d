package disk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/volume"
)

// A program that ends between two looks at its files is held to its limit all the same, by a later process of the peer
// too.
func TestMeasuredAtTheEnd(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	if err := os.WriteFile(filepath.Join(out, "f"), make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if !Over([]string{out}, 1<<20) {
		t.Error("it is not over its limit")
	}
	if Over([]string{out}, 4<<20) {
		t.Error("it is over its limit")
	}
}

// On a disk that is nearly full, the one that grows fastest is ended, and of those that cannot be measured in time each
// counts as that.
func TestGrowth(t *testing.T) {
	t.Parallel()
	var slow, quick Growth
	slow.begin()
	slow.end(100)
	slow.begin()
	slow.end(101)
	quick.begin()
	quick.end(0)
	quick.begin()
	quick.end(1 << 30)
	if slow.Speed() >= quick.Speed() {
		t.Errorf("%v, %v", slow.Speed(), quick.Speed())
	}
	slow.begin()
	slow.began = slow.began.Add(-2 * slowLook)
	if slow.Speed() <= quick.Speed() {
		t.Errorf("%v, %v", slow.Speed(), quick.Speed())
	}
}

// A mount with a limit of its own is a volume of that size, and no directory of the machine's disk.
func TestAttackRoomWithoutVolume(t *testing.T) {
	t.Parallel()
	dir, plain := t.TempDir(), t.TempDir()
	mount := func(host string, mib uint32, readOnly bool) []runtime.Mount {
		return []runtime.Mount{{Host: dir, Guest: "/out"}, {Host: host, Guest: "/data", RoomMiB: mib, ReadOnly: readOnly}}
	}
	if _, _, err := HoldRooms(dir, mount(plain, 8, false)); err == nil {
		t.Error("a directory of the disk is taken for a volume")
	}
	if rooms, _, err := HoldRooms(dir, mount(plain, 8, true)); err != nil || len(rooms) > 0 {
		t.Errorf("a mount that is not written: %v, %v", rooms, err)
	}
	if err := volume.Try(t.Context(), t.TempDir(), os.Getpid()); err != nil {
		t.Skip(err)
	}
	own := filepath.Join(t.TempDir(), "data")
	t.Cleanup(func() { _ = volume.Release(own) })
	if err := volume.Keep(t.Context(), own, own+".img", 8<<20); err != nil {
		t.Fatal(err)
	}
	rooms, devices, err := HoldRooms(dir, mount(own, 8, false))
	if len(devices) != 1 {
		t.Errorf("devices: %v", devices)
	}
	if err != nil || len(rooms) != 1 || rooms[0].Dir != "/data" || rooms[0].Bytes != 8<<20 || rooms[0].Volume.Blocks == 0 {
		t.Errorf("a volume: %+v, %v", rooms, err)
	}
	if _, _, err := HoldRooms(dir, mount(own, 2, false)); err == nil {
		t.Error("a volume that is larger than the limit is taken")
	}
}
