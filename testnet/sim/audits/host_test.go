package audits

import (
	"testing"
	"time"

	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify/audit"
)

// sold is the share of windows after which a class of honest units can be sold, and how many of a hundred were delisted within a day.
func sold(c sim.Class, h host) (share float64, delisted int) {
	passed, all := 0, 0
	for i := range 100 {
		w := play.NewWorld(1, "hosts "+c.Name, i)
		u := honest(w, c)
		u.host = h
		var s audit.Standing
		for window := range 24 {
			committee := s.CommitteeSize()
			rep := u.play(window, committee)
			s = s.Step(rep)
			all++
			if rep.Result == audit.Passed {
				passed++
			}
		}
		if s.State == audit.Delisted {
			delisted++
		}
	}
	return float64(passed) / float64(all), delisted
}

// Honest GPUs of every class keep their deadlines with what their hosts were measured to take, and with twice of it; the longest need at
// most three quarters of what they may. As helpers did it once, raw hashes and ends through the pipe and hashed at the end, the
// large ones do not: so this would be seen.
func TestHonestHosts(t *testing.T) {
	t.Parallel()
	slow := host{pipe: 2 * measured.pipe, hash: 2 * measured.hash, copy: 2 * measured.copy}
	before := measured
	before.late = true
	for _, c := range sim.GPUs {
		u := (&unit{}).claims(c)
		product, walk := u.floor.Deadlines(u.shape, u.walk)
		needs := func(h host) (float64, float64) {
			may := func(t uint64) float64 { return float64(t+audit.Allowance) * float64(time.Microsecond) }
			return float64(h.product(u.shape, c.Multiplies(u.shape))) / may(product), float64(h.walk(u.walk, c.Walks(u.walk, sim.Whole))) / may(walk)
		}
		p, w := needs(measured)
		pBefore, wBefore := needs(before)
		t.Logf("%-10s of what they may without the network products take %.2f (late %.2f), walk %.2f (late %.2f)", c.Name, p, pBefore, w, wBefore)
		if p > 0.85 || w > 0.85 {
			t.Errorf("%s: products %.2f, walk %.2f of what they may take", c.Name, p, w)
		}
		if wBefore <= 0.85 {
			t.Errorf("%s: a host that hashes late and raw needs %.2f of what its walk may take, which this test must see", c.Name, wBefore)
		}
		for name, h := range map[string]host{"measured": measured, "twice": slow} {
			if share, delisted := sold(c, h); share < 0.95 || delisted > 1 {
				t.Errorf("%s, host %s: %.1f %% of windows pass, %d of 100 are delisted", c.Name, name, 100*share, delisted)
			}
		}
	}
}
