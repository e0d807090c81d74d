package programs

import (
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/buyer/jobs"
)

type fakeLine struct {
	lost          string
	spent, unpaid bool
}

func (l fakeLine) LostReason() string { return l.lost }
func (l fakeLine) Spent() bool        { return l.spent }
func (l fakeLine) Outage() (away, ahead time.Duration, unpaid bool) {
	return 12 * time.Second, 3 * time.Second, l.unpaid
}

// A provider that ended a program which was not paid for while this peer was away is not blamed, whether its report or
// the loss of the lease comes first.
func TestLossOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line   fakeLine
		cause  jobs.Cause
		reason string
		known  bool
	}{
		{fakeLine{}, 0, "", false}, // the provider's doing
		{fakeLine{spent: true}, jobs.CauseExpired, "used up", false},
		{fakeLine{unpaid: true}, jobs.CauseAbsent, "this peer was away for 12s, longer than the 3s", false},
		{fakeLine{unpaid: true, spent: true}, jobs.CauseAbsent, "away for 12s", false},
		{fakeLine{lost: "no receipt", unpaid: true}, 0, "", true},
	} {
		cause, reason, known := lossOf(c.line)
		if cause != c.cause || !strings.Contains(reason, c.reason) || known != c.known {
			t.Errorf("%+v: got %d, %q, %t", c.line, cause, reason, known)
		}
	}
}
