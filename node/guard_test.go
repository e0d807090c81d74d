package node

import (
	"testing"
	"time"

	"github.com/starling-network/starling/node/buyer/guardian/wards"
	"github.com/starling-network/starling/node/config"
)

// The section about guarding becomes the guardian's policy, with the share in millionths and the size in bytes.
func TestGuardPolicy(t *testing.T) {
	t.Parallel()
	want := wards.Policy{
		Accept: true, MaxJobs: 64, ShareMillionths: 5000, MaxBytes: 4 << 30, Longest: 31 * 24 * time.Hour,
	}
	if got := guardPolicy(config.Default()); got != want {
		t.Errorf("policy %+v, want %+v", got, want)
	}
}
