package networkcmd_test

import (
	"encoding/json"
	"testing"

	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market/sign"
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
	c.CLI(t, "network", "proposal", "new", "--fee", "150").Want(t, cli.ExitUsage, `is not registered`)
	c.CLI(t, "stake", "register").Want(t, cli.ExitOK)
	c.CLI(t, "stake", "add", "40").Want(t, cli.ExitOK)
	c.CLI(t, "network", "proposal", "new", "--fee", "150").Want(t, cli.ExitUsage, `proposing and voting need bonded stake`, `^hint: starling stake bond AMOUNT`)
	c.CLI(t, "stake", "bond", "41").Want(t, cli.ExitUsage, `41.00 STAR cannot be bonded of a stake of 40.00 STAR`)
	c.CLI(t, "stake", "bond", "29").Want(t, cli.ExitUsage, `the network's least stake is 30.00 STAR`)
	c.CLI(t, "stake", "bond", "30").Want(t, cli.ExitOK, `^bonding 30.00 STAR of the stake of`)
	c.CLI(t, "network", "proposal", "new", "--fee", "150").Want(t, cli.ExitPayment, `30.00 STAR is bonded in the network, votes need at least 35.00 STAR`)
	c.CLI(t, "stake", "bond", "all").Want(t, cli.ExitOK)
	c.CLI(t, "stake", "remove", "1").Want(t, cli.ExitUsage, `40.00 STAR of the stake is bonded`, `^hint: starling stake release`)
	c.CLI(t, "stake", "status").Want(t, cli.ExitOK, `^bonded +40.00 STAR +it votes`)
	c.CLI(t, "network", "rules").Want(t, cli.ExitOK, `^fee of \w+ +200 bps +10 bps +1000 bps`, `^min-stake +30.00 STAR +7.50 STAR +120.00 STAR`, `^response +250 slots, 5s +250 slots, 5s +1000 slots, 20s`)
	c.CLI(t, "network", "proposal", "new").Want(t, cli.ExitUsage, `the proposal changes nothing`)
	c.CLI(t, "network", "proposal", "new", "--fee", "9").Want(t, cli.ExitUsage, `fee of 9 bps, want 10 to 1000`, `^hint: starling network rules`)
	c.CLI(t, "network", "proposal", "new", "--burn", "6000").Want(t, cli.ExitUsage, `shares add up to 11000 bps, want 10000`)
	c.CLI(t, "network", "proposal", "new", "--response", "4s").Want(t, cli.ExitUsage, `200 slots to respond, want 250 to 4 times that`)
	c.CLI(t, "network", "proposal", "new", "--fee", "150", "--dry-run").Want(t, cli.ExitOK, `^fee +200 bps → 150 bps$`)
	c.CLI(t, "network", "proposal", "ls").Want(t, cli.ExitOK, `^none$`)
	c.CLI(t, "network", "proposal", "new", "--fee", "150").Want(t, cli.ExitOK, `^opening proposal \w+`, `^a proposal is no vote`)

	var all []struct {
		Address          sign.Key
		Ends, Ripe, Dead uint64
	}
	if err := json.Unmarshal([]byte(c.CLI(t, "network", "proposal", "ls", "-o", "json").Want(t, cli.ExitOK, `"state": "open"`).Out), &all); err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	p := all[0]
	id := p.Address.Short()
	c.CLI(t, "network", "proposal", "vote", id, "for").Want(t, cli.ExitOK, `^voting for \w+ with 40.00 STAR`)
	c.CLI(t, "stake", "release", "all").Want(t, cli.ExitPayment, `the stake took part in a vote, and is bonded until that has ended`)
	c.CLI(t, "network", "proposal", "vote", id, "against").Want(t, cli.ExitPayment, `has voted on it|has ended`)
	c.CLI(t, "network", "proposal", "execute", id).Want(t, cli.ExitPayment, `is (open|locked): it can be executed slot \d+, in about`)
	c.CLI(t, "network", "proposal", "vote", id, "yes").Want(t, cli.ExitUsage, `want for or against`)
	c.CLI(t, "network", "proposal", "vote", "nothing", "for").Want(t, cli.ExitUsage, `"nothing": not found`, `^hint: starling network proposal ls`)
	c.CLI(t, "network", "proposal", "show", id).Want(t, cli.ExitOK, `^fee +200 bps → 150 bps`, `^for +40.00 STAR +100.0 %`, `^snapshot +40.00 STAR`, `^this peer +voted for`)
	c.until(t, p.Ends)
	c.CLI(t, "network", "proposal", "vote", id, "for").Want(t, cli.ExitPayment, `the vote on \w+ has ended`)
	c.until(t, p.Ripe)
	c.CLI(t, "network", "proposal", "ls").Want(t, cli.ExitOK, `^\w+ +ripe +fee 200 bps → 150 bps +100.0 % +0.0 %`)
	c.CLI(t, "network", "proposal", "execute", id).Want(t, cli.ExitOK, `^executing \w+: fee 200 bps → 150 bps`)
	c.CLI(t, "network", "proposal", "execute", id).Want(t, cli.ExitPayment, `is executed: it cannot be executed`)
	c.CLI(t, "network", "rules").Want(t, cli.ExitOK, `^fee of \w+ +150 bps`)
	if account, changed, err := peer.Update(t.Context()); err != nil || !changed || account.Rules.Fees[0].FeeBps != 150 {
		t.Errorf("a peer reads %+v, %t, %v", account.Rules, changed, err)
	}
	c.CLI(t, "stake", "release", "all").Want(t, cli.ExitOK, `^releasing 40.00 STAR`)
	c.until(t, p.Dead+1)
	c.CLI(t, "network", "proposal", "close", id).Want(t, cli.ExitOK, `^closing \w+`)
	c.CLI(t, "network", "proposal", "ls", "-o", "json").Want(t, cli.ExitOK, `^\[\]$`)
}
