package disk

import (
	"os"
	"path/filepath"
	"testing"
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
