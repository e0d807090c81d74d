package sim

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// town is a set of which a fifth of the stake is one adversary's, in as many keys as the honest have for theirs, on a network whose peers make
// the beacons.
type town struct {
	roster audit.Roster
	bad    map[sign.Key]bool
}

func newTown(w *world) town {
	t := town{bad: map[sign.Key]bool{}}
	for i := range honestMembers + againstRules {
		k := random[sign.Key](w)
		t.bad[k] = i < againstRules
		t.roster = append(t.roster, audit.Member{Key: k, Owner: k, Weight: 1000})
	}
	return t
}

func (t town) friends(of audit.Roster) (n int) {
	for _, m := range of {
		if t.bad[m.Key] {
			n++
		}
	}
	return n
}

// beacon is what the peers drawn for a provider in a window make, and how many of the adversary's are among them: the last of these knows
// it before anybody else and may still withhold its nonce.
func (t town) beacon(w *world, provider sign.Key, window audit.Window) (audit.Beacon, int) {
	drawn, size := t.roster.DrawRevealers(window, provider)
	var rs []audit.Revealed
	for _, m := range drawn[:size] {
		h := random[sign.Hash](w)
		rs = append(rs, audit.Revealed{Member: m.Key, Nonce: audit.Nonce(h[:])})
	}
	b, _ := audit.FromReveals(provider, window, rs)
	return b, t.friends(drawn[:size])
}

// withholds is a card of half its class, whose friends let no beacon be that draws a committee without enough of them: it is absent
// where it would fail.
func withholds(w *world) player {
	t, provider := newTown(w), random[sign.Key](w)
	return func(window, committee int) audit.Report {
		b, friends := t.beacon(w, provider, audit.Window(window))
		drawn := t.roster.Draw(b, audit.Window(window), provider, committee+audit.Slack)
		switch {
		case t.friends(drawn) >= audit.Certify(committee):
			return audit.Report{Result: audit.Passed}
		case friends > 0:
			return audit.Report{Result: audit.Absent}
		}
		return audit.Report{Result: audit.Failed}
	}
}

// denied is an honest peer for whose beacons a fifth of those drawn commit and do not reveal.
func denied(w *world) player {
	t, provider := newTown(w), random[sign.Key](w)
	return func(window, _ int) audit.Report {
		if _, against := t.beacon(w, provider, audit.Window(window)); against > 0 {
			return audit.Report{Result: audit.Absent}
		}
		return audit.Report{Result: audit.Passed}
	}
}

// lists asks for two lists of commitments in one window, each with enough of those drawn for honest members to reveal for it. Of the honest each
// reveals for one, so that the adversary's must make up what both have in common.
func lists(w *world) (trial, error) {
	t := newTown(w)
	two := func() bool {
		drawn, _ := t.roster.DrawRevealers(audit.Window(w.r.Uint64()), random[sign.Key](w))
		own := t.friends(drawn)
		return 2*max(audit.Certify(len(drawn))-own, 0) <= len(drawn)-own
	}
	out := trial{checks: 1, first: !two()}
	for out.caught = out.first; !out.caught && out.checks < Horizon; out.checks++ {
		out.caught = !two()
	}
	if !out.first {
		out.gain = 1
	}
	return out, nil
}

// revealed makes a record by the peers' own beacon with a change to what they revealed, and wants it refused by rule beacon.
func revealed(i, n int, change func(c audittest.Case, rs []audit.Revealed) error) error {
	bs, err := audit.NewBeacons(whole(i).Genesis(market.CommitReveal))
	if err != nil {
		return err
	}
	return refused(i, audit.RuleBeacon, func(c *audittest.Case) {
		c.Drawn = func(c audittest.Case) (audit.Beacon, []byte, audit.Beacon, error) {
			rs, err := c.Reveals(n)
			if err == nil && change != nil {
				err = change(c, rs)
			}
			b, proof := audit.FromReveals(c.Provider.Key(), c.Window, rs)
			return b, proof, bs.RevealEra(c.Window), err
		}
	}, nil, func(c audittest.Case, r audit.Record) error {
		if err := r.Check(audittest.Domain()); err != nil {
			return fmt.Errorf("nothing but its beacon is wrong: %w", err) // would be another rule's
		}
		if err := r.CheckBeacon(bs); err != nil {
			return err
		}
		return r.CheckMembers(c.Roster)
	})
}

// ground has the last to reveal try nonces until the beacon suits it, and sign for the list that its new commitment makes.
func ground(c audittest.Case, rs []audit.Revealed) error {
	provider, last := c.Provider.Key(), &rs[len(rs)-1]
	last.Nonce[0]++
	list := make([]audit.Commitment, len(rs))
	for i, r := range rs {
		list[i] = audit.Commit(r.Member, provider, c.Window, r.Nonce)
	}
	slices.SortFunc(list, func(a, b audit.Commitment) int { return slices.Compare(a.Member[:], b.Member[:]) })
	s := audit.Reveal{Member: last.Member, Provider: provider, Window: c.Window, List: audit.ListHash(provider, c.Window, list), Nonce: last.Nonce}
	var err error
	last.Signature, err = s.Sign(audittest.Domain(), c.Members[last.Member])
	return err
}

// Who would choose the beacon that its peers make for it. Commitments bind who reveals last; who withholds has no beacon.
var revealKinds = []Kind{
	{Name: "reveal-ground", Threat: 12, What: "its friend reveals last, and what it did not commit to", play: always(func(u *unit) { u.wrong = true }),
		real: func(i int) error { return revealed(i, 12, ground) }},
	{Name: "reveal-friends", Threat: 12, What: "its beacon is made by fewer than must", play: always(func(u *unit) { u.wrong = true }),
		real: func(i int) error { return revealed(i, 7, nil) }},
	{Name: "reveal-lists", Threat: 12, What: "two lists in one window, with a fifth of all stake", try: lists, Gain: Gain{
		What: "share of windows with a second draw", Most: atLeast(audit.Revealers+audit.Slack, 2*audit.Certify(audit.Revealers+audit.Slack)-audit.Revealers-audit.Slack, 0.2), Chance: true}},
	{Name: "reveal-withheld", Threat: 12, What: "half a card; its friends, a fifth of all stake, withhold where it would fail", Limit: "colluding committee (see capture)", play: withholds},
	{Name: "reveal-denied", Threat: 22, What: "honest; 20 % of those who make its beacons commit and withhold", Honest: true, play: denied},
}
