package harness

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/node/proof"
	rules "github.com/starling-network/starling/verify/audit"
)

// Where peers have something at stake, a member that passes what it did not look at loses it: whoever caught it tells the network,
// everybody keeps the proof and thinks less of it, also who was not there, and it is slashed once, by one of them.
func TestLiarIsToldOfAndSlashed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const asleep, planter, stake = 3, 1, bonded
		n := cheats(t, Options{Providers: 5, Masks: 40}, nil)
		liar := n.Provider(asleep).Key.Key()
		l := makeLazy(t, n, n.Provider(asleep), newSight(t, n))
		past := map[rules.Window]bool{}
		for _, a := range audited(t, n.Provider(planter), 1) {
			past[a.Window] = true
		}
		audited(t, n.Provider(planter), len(past)+1) // it has just been audited: it has no turn of its own to wait for
		slashed := func() bool {                     // by the proof of whichever canary came first: peers plant some of their own
			return n.Programs.State().Providers[account.ProviderAddress(n.Genesis.Program, n.Genesis.Escrow, liar)].WasSlashed
		}
		c, err := n.Provider(planter).Audits().Service().Plant(context.Background())
		own := planter
		switch {
		case err == nil && len(c.Lies) == 1 && l.passed[c.Planted.Provider] == 1:
		case err == nil && slashed(): // before this canary, on whose committee it was no more
			own = -1
		default:
			t.Fatalf("the canary: %+v, %v", c, err)
		}
		for i := range n.Peers {
			if i == asleep { // it does not listen to what it would not like to hear, in the worst case
				continue
			}
			var found *proof.Entry
			for end := time.Now().Add(2 * time.Minute); found == nil || i == own && !found.State.Over() && !slashed(); time.Sleep(time.Second) {
				for _, k := range n.Peers[i].Proofs().Proofs(proof.KindFraud) {
					if k.Subjects[0] == liar && (k.Own || i != own) {
						found = &k
					}
				}
				if time.Now().After(end) {
					t.Fatalf("%s: %+v", name(i), found)
				}
			}
			if !strings.HasPrefix(found.Proves, rules.FalsePass.String()) || i == own && !slashed() {
				t.Errorf("%s: %+v", name(i), found)
			}
			if got := knows(t, n.Peers[i], liar, "lied"); got < 1 {
				t.Errorf("%s knows of %d lies", name(i), got)
			}
		}
		s := n.Programs.State()
		p := s.Providers[account.ProviderAddress(n.Genesis.Program, n.Genesis.Escrow, liar)]
		if p.Stake != 0 || !p.WasSlashed {
			t.Errorf("the liar has %+v", p)
		}
		for i := range 5 {
			k := n.Provider(i).Key.Key()
			if p := s.Providers[account.ProviderAddress(n.Genesis.Program, n.Genesis.Escrow, k)]; k != liar && (p.Stake != stake || p.WasSlashed) {
				t.Errorf("%s, who is honest, has %+v", name(i), p)
			}
		}
		if err := n.Programs.Check(); err != nil {
			t.Error(err)
		}
	})
}
