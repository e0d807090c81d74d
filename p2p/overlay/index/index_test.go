package index

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p/overlay/wire"
)

// TestIndex compares an index to a list of everything that was given out: an index is the last member's that got it, for
// its time, and no more than so many are kept of one member.
func TestIndex(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := New[int]()
		var entries [4]*Entry[int]
		for i := 1; i < len(entries); i++ {
			entries[i] = NewEntry(i, wire.Tag{byte(i)})
			x.Add(entries[i])
		}
		now := time.Unix(1_000_000, 0)
		owner, gone := map[uint32]int{}, map[int]bool{}
		for range rapid.IntRange(1, 600).Draw(t, "steps") {
			m := rapid.IntRange(1, 3).Draw(t, "member")
			switch rapid.IntRange(0, 40).Draw(t, "step") {
			case 0:
				x.Remove(entries[m])
				gone[m] = true
				for i, o := range owner {
					if o == m {
						delete(owner, i)
					}
				}
			case 1:
				now = now.Add(time.Duration(rapid.IntRange(1, 250).Draw(t, "seconds")) * time.Second)
			default:
				i := uint32(rapid.IntRange(0, 500).Draw(t, "index"))
				x.Learn(entries[m], i, now)
				if !gone[m] {
					owner[i] = m
				}
			}
			i := uint32(rapid.IntRange(0, 500).Draw(t, "looked up"))
			if got := x.Given(i); got != 0 && got != owner[i] {
				t.Fatalf("index %d is member %d's, want %d's", i, got, owner[i])
			}
			if got := x.Tagged(wire.Tag{byte(m)}); got == m == gone[m] {
				t.Fatalf("the tag of member %d is %d's, gone: %v", m, got, gone[m])
			}
			if n := len(entries[m].given); n > maxIndices || gone[m] && n > 0 {
				t.Fatalf("member %d has %d indices", m, n)
			}
		}
	})
}

// A member that makes a device answer many initiations has the latest indices, and those of its time.
func TestIndicesAreBounded(t *testing.T) {
	t.Parallel()
	x, now := New[string](), time.Unix(0, 0)
	e := NewEntry("flood", wire.Tag{1})
	for i := range uint32(3 * maxIndices) {
		x.Learn(e, i, now)
	}
	if len(x.byIndex) != maxIndices || x.Given(3*maxIndices-1) != "flood" || x.Given(0) != "" {
		t.Errorf("%d indices are known", len(x.byIndex))
	}
	x.Learn(e, 1<<20, now.Add(life+time.Second))
	if len(x.byIndex) != 1 || len(e.given) != 1 {
		t.Errorf("%d indices are known after their time", len(x.byIndex))
	}
	x.Learn(NewEntry("other", wire.Tag{2}), 1<<20, now.Add(life+time.Second))
	x.Remove(e)
	if x.Given(1<<20) != "other" {
		t.Error("an index of another member went with this one")
	}
	if x.Learn(e, 7, now); x.Given(7) != "" {
		t.Error("a member that has gone gets an index")
	}
}
