package cli

import (
	"encoding/json"
	"testing"

	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/node/rewards"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/store"
)

// TestProposals: the fee is lowered by vote, from what may be asked to what a peer then reads; what cannot be done says why.
func TestProposals(t *testing.T) {
	t.Parallel()
	c := newChained(t)
	l, err := solana.New(solana.ConfigOf([]string{c.net.URL()}, c.genesis, c.peer))
	if err != nil {
		t.Fatal(err)
	}
	peer := settle.NewNetwork(c.genesis, l, store.NewMemory())
	if net, err := peer.Get(t.Context()); err != nil || net.Account.Rules.Fees[0].FeeBps != 200 {
		t.Fatalf("%+v, %v", net, err)
	}
	c.cli(t, "network", "proposal", "new", "--fee", "150").want(t, ExitUsage, `is not registered`)
	c.cli(t, "stake", "register").want(t, ExitOK)
	c.cli(t, "stake", "add", "40").want(t, ExitOK)
	c.cli(t, "network", "proposal", "new", "--fee", "150").want(t, ExitUsage, `only who has something bonded may propose and vote`, `^hint: starling stake bond AMOUNT`)
	c.cli(t, "stake", "bond", "41").want(t, ExitUsage, `41.00 STAR cannot be bonded of a stake of 40.00 STAR`)
	c.cli(t, "stake", "bond", "29").want(t, ExitUsage, `the network's least stake is 30.00 STAR`)
	c.cli(t, "stake", "bond", "30").want(t, ExitOK, `^bonding 30.00 STAR of the stake of`)
	c.cli(t, "network", "proposal", "new", "--fee", "150").want(t, ExitPayment, `30.00 STAR is bonded in the network, nothing is voted on below 35.00 STAR`)
	c.cli(t, "stake", "bond", "all").want(t, ExitOK)
	c.cli(t, "stake", "remove", "1").want(t, ExitUsage, `40.00 STAR of the stake is bonded`, `^hint: starling stake release`)
	c.cli(t, "stake", "status").want(t, ExitOK, `^bonded +40.00 STAR +it votes`)
	c.cli(t, "network", "rules").want(t, ExitOK, `^fee of \w+ +200 bps +10 bps +1000 bps`, `^min-stake +30.00 STAR +7.50 STAR +120.00 STAR`, `^response +250 slots, 5s +250 slots, 5s +1000 slots, 20s`)
	c.cli(t, "network", "proposal", "new").want(t, ExitUsage, `this changes nothing`)
	c.cli(t, "network", "proposal", "new", "--fee", "9").want(t, ExitUsage, `fee of 9 bps, want 10 to 1000`, `^hint: starling network rules`)
	c.cli(t, "network", "proposal", "new", "--burn", "6000").want(t, ExitUsage, `shares add up to 11000 bps, want 10000`)
	c.cli(t, "network", "proposal", "new", "--response", "4s").want(t, ExitUsage, `200 slots to respond, want 250 to 4 times that`)
	c.cli(t, "network", "proposal", "new", "--fee", "150", "--dry-run").want(t, ExitOK, `^fee +200 bps → 150 bps$`)
	c.cli(t, "network", "proposal", "ls").want(t, ExitOK, `^none$`)
	c.cli(t, "network", "proposal", "new", "--fee", "150").want(t, ExitOK, `^opening proposal \w+`, `^proposing is not voting`)

	var all []proposalInfo
	if err := json.Unmarshal([]byte(c.cli(t, "network", "proposal", "ls", "-o", "json").want(t, ExitOK, `"state": "open"`).out), &all); err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	p := all[0]
	id := p.Address.Short()
	c.cli(t, "network", "proposal", "vote", id, "for").want(t, ExitOK, `^voting for \w+ with 40.00 STAR`)
	c.cli(t, "stake", "release", "all").want(t, ExitPayment, `it took part in a vote, and is bonded until that has ended`)
	c.cli(t, "network", "proposal", "vote", id, "against").want(t, ExitPayment, `has voted on it|is over`)
	c.cli(t, "network", "proposal", "execute", id).want(t, ExitPayment, `is (open|locked): it can be executed slot \d+, in about`)
	c.cli(t, "network", "proposal", "vote", id, "yes").want(t, ExitUsage, `want for or against`)
	c.cli(t, "network", "proposal", "vote", "nothing", "for").want(t, ExitUsage, `there is no "nothing" here`, `^hint: starling network proposal ls`)
	c.cli(t, "network", "proposal", "show", id).want(t, ExitOK, `^fee +200 bps → 150 bps`, `^for +40.00 STAR +100.0 %`, `^snapshot +40.00 STAR`, `^this peer +voted for`)
	c.until(t, p.Ends)
	c.cli(t, "network", "proposal", "vote", id, "for").want(t, ExitPayment, `the vote on \w+ is over`)
	c.until(t, p.Ripe)
	c.cli(t, "network", "proposal", "ls").want(t, ExitOK, `^\w+ +ripe +fee 200 bps → 150 bps +100.0 % +0.0 %`)
	c.cli(t, "network", "proposal", "execute", id).want(t, ExitOK, `^executing \w+: fee 200 bps → 150 bps`)
	c.cli(t, "network", "proposal", "execute", id).want(t, ExitPayment, `is executed: nothing comes of it`)
	c.cli(t, "network", "rules").want(t, ExitOK, `^fee of \w+ +150 bps`)
	if account, changed, err := peer.Update(t.Context()); err != nil || !changed || account.Rules.Fees[0].FeeBps != 150 {
		t.Errorf("a peer reads %+v, %t, %v", account.Rules, changed, err)
	}
	c.cli(t, "stake", "release", "all").want(t, ExitOK, `^releasing 40.00 STAR`)
	c.until(t, p.Dead+1)
	c.cli(t, "network", "proposal", "close", id).want(t, ExitOK, `^closing \w+`)
	c.cli(t, "network", "proposal", "ls", "-o", "json").want(t, ExitOK, `^\[\]$`)
}

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
