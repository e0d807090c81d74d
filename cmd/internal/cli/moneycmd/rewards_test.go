package moneycmd

import (
	"testing"

	"github.com/starling-network/starling/node/rewards"
)

// What keeps rewards from being paid is said, the first thing first.
func TestWhyNothing(t *testing.T) {
	t.Parallel()
	text := func(uint64) string { return "some" }
	good := rewards.Status{On: true, Audits: true, Registered: true, Emission: 5, Left: 5, Bonded: 3, LeastBonded: 3}
	if why := whyNothing(good, text); why != "" {
		t.Error(why)
	}
	seen := map[string]bool{}
	for _, change := range []func(*rewards.Status){
		func(s *rewards.Status) { s.On = false }, func(s *rewards.Status) { s.Audits = false }, func(s *rewards.Status) { s.Bonded = 2 },
		func(s *rewards.Status) { s.Registered = false }, func(s *rewards.Status) { s.Left = 0 },
	} {
		s := good
		change(&s)
		if why := whyNothing(s, text); why == "" || seen[why] {
			t.Errorf("%+v: %q", s, why)
		} else {
			seen[why] = true
		}
	}
}
