package executions

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
)

// The user of a program that ran out of memory or disk learns how much its lease had.
func TestSized(t *testing.T) {
	t.Parallel()
	per := market.Resources{MemoryMiB: 512, DiskMiB: 1024}
	for _, c := range []struct {
		exit jobs.Exit
		want string
	}{
		{jobs.Exit{Code: 137, Reason: "oom"}, "the lease has 1024 MiB of memory"},
		{jobs.Exit{Code: 137, Reason: "disk"}, "the lease has 2048 MiB of disk"},
		{jobs.Exit{Code: 137, Reason: "oom", Detail: "the provider's word"}, "the provider's word"},
		{jobs.Exit{Code: 137, Reason: "killed"}, ""},
		{jobs.Exit{}, ""},
	} {
		if got := Sized(c.exit, 2, per); got.Detail != c.want || got.Code != c.exit.Code || got.Reason != c.exit.Reason {
			t.Errorf("%+v: got %+v, want detail %q", c.exit, got, c.want)
		}
	}
	if got := Sized(jobs.Exit{Reason: "oom"}, 1, market.Resources{}); got.Detail != "" {
		t.Errorf("of a lease without a size: %+v", got)
	}
}
