package entries_test

import (
	"testing"

	"github.com/starling-network/starling/p2p/blob/entries"
)

// Folders that only the names of others imply count, too.
func TestFresh(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, last string
		want       int
	}{{"a", "", 1}, {"a/b/c", "", 3}, {"a/b/c", "a", 2}, {"a/b/c", "a/b", 1}, {"a/b/c", "a/b/d", 1}, {"a/b/c", "a/bc/d", 2}, {"b/c", "a/b", 2}, {"a", "a/b", 1}} {
		if got := entries.Fresh(c.name, c.last); got != c.want {
			t.Errorf("%q after %q counts %d, want %d", c.name, c.last, got, c.want)
		}
	}
}
