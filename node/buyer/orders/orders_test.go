package orders

import (
	"context"
	"errors"
	"testing"

	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/jobs"
)

// A gang fails for good only if nobody fits: the machine orders again after all other failures.
func TestFailureOf(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want jobs.Failure
	}{
		"unfit":   {t.Context(), &exchange.Unplaced{Reason: "none"}, jobs.GangUnfit},
		"raced":   {t.Context(), &exchange.Unplaced{Raced: true}, jobs.GangShort},
		"thin":    {t.Context(), &exchange.Unplaced{Thin: true}, jobs.GangShort},
		"far":     {t.Context(), &exchange.Unplaced{Unsettled: true}, jobs.GangShort},
		"journal": {t.Context(), errors.New("disk full"), jobs.GangShort},
		"dropped": {t.Context(), jobs.ErrDropped, jobs.GangDropped},
		"stopped": {over, errors.New("cancelled"), jobs.GangDropped},
	} {
		if got := failureOf(c.ctx, 4, c.err); got.Why != c.want || got.Gang != 4 || got.Reason == "" && name != "raced" && name != "thin" && name != "far" {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
}
