package jobcmd

import (
	"testing"

	"github.com/starling-network/starling/node/buyer/record"
)

func TestShortest(t *testing.T) {
	t.Parallel()
	got := Shortest([]record.Job{jobOf("jaaaaaaaaaaa1"), jobOf("jaaaaaaaaaaa2"), jobOf("jbbbbbbbbbbbb"), jobOf("jc")})
	for id, want := range map[string]string{"jaaaaaaaaaaa1": "jaaaaaaaaaaa1", "jaaaaaaaaaaa2": "jaaaaaaaaaaa2", "jbbbbbbbbbbbb": "jbbbbbbb", "jc": "jc"} {
		if got[id] != want {
			t.Errorf("%s is shortened to %q, want %q", id, got[id], want)
		}
	}
}

func jobOf(id string) record.Job { return record.Job{ID: id} }
