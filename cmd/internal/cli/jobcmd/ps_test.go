package jobcmd

import (
	"testing"

	"github.com/starling-network/starling/node/buyer"
)

func TestShortest(t *testing.T) {
	t.Parallel()
	got := Shortest([]buyer.Job{jobOf("jaaaaaaaaaaa1"), jobOf("jaaaaaaaaaaa2"), jobOf("jbbbbbbbbbbbb"), jobOf("jc")})
	for id, want := range map[string]string{"jaaaaaaaaaaa1": "jaaaaaaaaaaa1", "jaaaaaaaaaaa2": "jaaaaaaaaaaa2", "jbbbbbbbbbbbb": "jbbbbbbb", "jc": "jc"} {
		if got[id] != want {
			t.Errorf("%s is shortened to %q, want %q", id, got[id], want)
		}
	}
}

func jobOf(id string) buyer.Job { return buyer.Job{ID: id} }
