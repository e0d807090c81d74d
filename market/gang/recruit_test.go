package gang_test

import (
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

func recruitParams() gang.Params {
	p := testParams()
	p.Recruit, p.RecruitTimeout = 500*time.Millisecond, 3*time.Second
	return p
}

// crowd plays providers under load: each answers late, is busy, or goes silent for a while, and lets holds lapse on
// time. From calm on every one answers at once.
type crowd struct {
	t     *rapid.T
	g     gang.Gang
	now   lease.Now
	calm  time.Time
	holds map[sign.Key]market.HoldID // what each has set aside now
	until map[sign.Key]time.Time
	taken map[market.HoldID]bool // became a lease
	gone  map[market.HoldID]bool // a release came
	todo  []gang.Effect
	ended bool
	ok    bool
}

const crowdTTL = 6 * time.Second

func (c *crowd) step(ev gang.Event) {
	var effects []gang.Effect
	c.g, effects, _ = c.g.Step(c.now, ev)
	c.todo = append(c.todo, effects...)
}

// answer lets one provider answer one request.
func (c *crowd) answer(e gang.Effect) {
	fair := c.calm.Before(c.now.Time)
	switch e := e.(type) {
	case gang.Reserve:
		mood := 0
		if !fair {
			mood = rapid.IntRange(0, 3).Draw(c.t, "mood")
		}
		old, has := c.holds[e.Provider]
		switch {
		case mood == 1 || has && old != e.Hold:
			c.step(gang.Refused{Rank: e.Rank, Hold: e.Hold, Reason: market.Refuse(market.ReasonCapacity, "0 are free")})
		case mood == 2:
			c.step(gang.Lost{Rank: e.Rank, Hold: e.Hold})
		default:
			c.holds[e.Provider], c.until[e.Provider] = e.Hold, c.now.Time.Add(crowdTTL)
			if mood != 3 || c.gone[e.Hold] { // else the answer is lost
				c.step(gang.Held{Rank: e.Rank, Hold: e.Hold, Units: []market.UnitID{{e.Provider[0]}}, Until: c.until[e.Provider]})
			}
		}
	case gang.Sign:
		if c.holds[e.Provider] != e.Hold {
			c.step(gang.Refused{Rank: e.Rank, Hold: e.Hold, Reason: market.Refuse(market.ReasonHold, "hold: ended")})
			return
		}
		c.until[e.Provider] = c.now.Time.Add(time.Hour)
		c.step(gang.Signed{Rank: e.Rank, Hold: e.Hold, ActivateBefore: c.now.Slot + 1000})
	case gang.Activate:
		c.taken[e.Hold] = true
		c.step(gang.Activated{Rank: e.Rank, Hold: e.Hold})
	case gang.Release:
		c.gone[e.Hold] = true
		if c.holds[e.Provider] == e.Hold {
			delete(c.holds, e.Provider)
		}
		c.step(gang.Released{Hold: e.Hold})
	case gang.Recruit:
		var free []sign.Key
		for i := range byte(6) {
			p := sign.Key{i + 1}
			if !slices.ContainsFunc(c.g.Seats(), func(s gang.Seat) bool { return s.Provider == p }) {
				free = append(free, p)
			}
		}
		c.step(gang.Recruited{Round: e.Round, Providers: free})
	case gang.Formed:
		c.ended, c.ok = true, true
	case gang.FailedWith:
		c.ended = true
	}
}

// TestRecruitingForms: as long as load, refusals and silence end before the deadline, a gang that recruits forms
// (liveness), and every provider has set aside exactly what became a lease (no hold is lost).
func TestRecruitingForms(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := recruitParams()
		p.Deadline = epoch.Add(2 * time.Minute)
		n := rapid.IntRange(1, 6).Draw(t, "n")
		calm := rapid.IntRange(0, 40).Draw(t, "calm")
		c := &crowd{
			t: t, now: lease.Now{Time: epoch, Slot: 1000}, calm: epoch.Add(time.Duration(calm) * time.Second),
			holds: map[sign.Key]market.HoldID{}, until: map[sign.Key]time.Time{},
			taken: map[market.HoldID]bool{}, gone: map[market.HoldID]bool{},
		}
		var chosen []gang.Member
		for i := range n {
			m := gang.Member{Rank: uint32(i)}
			if rapid.Bool().Draw(t, "quoted") {
				m.Provider = sign.Key{byte(i + 1)}
			}
			chosen = append(chosen, m)
		}
		c.g, c.todo = gang.New(testOrder(uint32(n), 1), chosen, nil, p)
		for !c.ended && c.now.Time.Before(p.Deadline.Add(time.Minute)) {
			// Members that have signed are quick: a slow one would rightly fail the gang.
			pays := func(e gang.Effect) bool { _, ok := e.(gang.Activate); return ok }
			if i := slices.IndexFunc(c.todo, pays); i >= 0 {
				e := c.todo[i]
				c.todo = slices.Delete(c.todo, i, i+1)
				c.answer(e)
				continue
			}
			if len(c.todo) > 0 && (c.calm.Before(c.now.Time) || rapid.IntRange(0, 4).Draw(t, "wait") > 0) {
				i := rapid.IntRange(0, len(c.todo)-1).Draw(t, "which")
				e := c.todo[i]
				c.todo = slices.Delete(c.todo, i, i+1)
				c.answer(e)
				continue
			}
			c.now.Time = c.now.Time.Add(time.Second)
			for p, at := range c.until {
				if !at.After(c.now.Time) {
					delete(c.holds, p)
				}
			}
			c.step(gang.DeadlinePassed{})
		}
		for len(c.todo) > 0 {
			e := c.todo[0]
			c.todo = c.todo[1:]
			c.answer(e)
		}
		if !c.ok {
			t.Fatalf("liveness: %s at the end, though all answered for a minute: %+v", c.g.State(), c.g.Seats())
		}
		for p, hold := range c.holds {
			if !c.taken[hold] && c.until[p].After(c.now.Time) {
				t.Fatalf("safety: provider %d still holds units for a gang that formed without them", p[0])
			}
		}
	})
}

// Failures and given-up holds of a gang that recruits in vain for an hour stay bounded.
func TestRecruitingForgets(t *testing.T) {
	t.Parallel()
	p := recruitParams()
	p.Deadline = epoch.Add(time.Hour)
	now := lease.Now{Time: epoch, Slot: 1000}
	g, effects := gang.New(testOrder(1, 1), []gang.Member{{}}, nil, p)
	asked := 0
	for now.Time.Before(p.Deadline) {
		var next []gang.Effect
		for _, e := range effects {
			var ev gang.Event = gang.DeadlinePassed{}
			switch e := e.(type) {
			case gang.Recruit:
				ev = gang.Recruited{Round: e.Round, Providers: []sign.Key{{1}}}
			case gang.Reserve:
				asked++
				ev = gang.Lost{Rank: e.Rank, Hold: e.Hold}
			case gang.Release:
				ev = gang.Released{Hold: e.Hold}
			}
			var more []gang.Effect
			g, more, _ = g.Step(now, ev)
			next = append(next, more...)
		}
		if effects = next; len(effects) > 0 {
			continue
		}
		at, ok := g.NextDeadline()
		if !ok || !at.After(now.Time) {
			t.Fatalf("%s: it waits for %v at %v", g.State(), at, now.Time)
		}
		now.Time = at
		g, effects, _ = g.Step(now, gang.DeadlinePassed{})
	}
	if len(g.Failures()) > 200 || asked < 500 {
		t.Errorf("%d failures are kept of %d", len(g.Failures()), asked)
	}
}
