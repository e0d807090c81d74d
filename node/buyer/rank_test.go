package buyer

import (
	"strings"
	"testing"
)

// A rank that ended at a limit of its units says which flag raises it.
func TestFailureNamesTheLimit(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"oom":  "rank 2 ended with exit code 137, oom; its units have too little memory: ask for more with resources.memory (--memory), or for more units; `starling logs`",
		"disk": "rank 2 ended with exit code 137, disk; its units have too little disk: ask for more with resources.disk (--disk), or for more units; `starling logs`",
		"":     "rank 2 ended with exit code 137; `starling logs`",
	} {
		if got := (Rank{Exit: 137, Reason: reason}).failure(2).Error(); !strings.Contains(got, want) {
			t.Errorf("%q: %s", reason, got)
		}
	}
}
