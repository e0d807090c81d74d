package deposit_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// TestMoney drives a buyer and its providers through random lives on a chain that loses transactions, forks, halts and goes
// away, dying at any write. Safety, at every slot: one escrow, tokens conserved, one deposit. At the end, when the chain works
// again, everything ends, every provider has exactly what it was owed as far as it claimed in time, and the buyer the rest.
func TestMoney(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { life(t, false) })
}

// TestFairMoney is the same with troubles that are shorter than the windows: then nothing is ever lost. The window for
// claims is a finality longer there: after a fork a claim may come before the opening of its payout's account and fail,
// and another is signed only when that is final.
func TestFairMoney(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := life(t, true)
		for _, r := range w.leases {
			if r.lost != nil && !r.void && !r.moved && (r.early || w.paid(r) < r.owed) { // what was void had been forked away
				t.Fatalf("lease %d lost %d of %d: %s", r.core.Rank, r.owed-w.paid(r), r.owed, r.lost.Reason)
			}
		}
	})
}

const lifeDeadline = 2500

func life(t *rapid.T, fair bool) *world {
	params := escrowtest.Params()
	if fair {
		params.ResponseSlots += escrowtest.Lag
	}
	net := escrowtest.Net(t, params)
	w := newWorld(t, net, escrowtest.KeySet(t, 1, "buyer"))
	guardians := []string{"guardian 1", "guardian 2", "guardian 3", "guardian 4", "guardian 5"}
	switch rapid.IntRange(0, 2).Draw(t, "guardians") {
	case 1:
		w = newWorld(t, net, escrowtest.KeySet(t, 2, guardians[:3]...), guardians[:3]...)
		if rapid.Bool().Draw(t, "many standbys") {
			w.crowded()
		}
	case 2: // no claim fits without a lookup table
		w = newWorld(t, net, escrowtest.KeySet(t, 5, guardians...), guardians...)
	}
	u := &trouble{world: w, t: t, fair: fair}
	u.fund()
	for range rapid.IntRange(5, 40).Draw(t, "steps") {
		u.step()
	}
	u.finale()
	return w
}

// trouble makes a world's life hard.
type trouble struct {
	*world
	t    *rapid.T
	fair bool
}

func (u *trouble) n(name string, a, b int) int { return rapid.IntRange(a, b).Draw(u.t, name) }

func (u *trouble) land() bool { return rapid.IntRange(0, 3).Draw(u.t, "lands") > 0 }

func (u *trouble) fund() {
	if len(u.leases) > 8 {
		return
	}
	var cores []market.LeaseCore
	for range u.n("leases", 1, 3) {
		cores = append(cores, u.lease(uint64(u.n("before", 12, 60)), uint64(u.n("length", 70, 200))))
	}
	err := u.world.fund(lifeDeadline, market.Amount(u.n("deposit", 0, 5000)), cores...)
	if u.ended && errors.Is(err, escrow.ErrEnding) || errors.Is(err, escrow.ErrDeadline) {
		u.leases = u.leases[:len(u.leases)-len(cores)]
	} else if err != nil {
		u.t.Fatalf("funding: %v", err)
	}
}

// hire has a supervisor hire standbys, and tells the buyer of it or not.
func (u *trouble) hire() {
	if _, open := u.buyer.m.Escrow(); !open || len(u.keys.Keys) == 1 || len(u.leases) > 8 {
		return
	}
	if s := u.n("which", 0, 1); s >= len(u.supervisors) {
		u.supervise("guardian " + string(rune('1'+len(u.supervisors))))
	}
	var cores []market.LeaseCore
	s := u.supervisor()
	for i := range u.n("leases", 1, 2) {
		cores = append(cores, u.standby(s, i, uint64(u.n("before", 12, 60)), uint64(u.n("length", 70, 150))))
	}
	err := s.tell(u.now, escrow.Fund{Leases: cores})
	if errors.Is(err, escrow.ErrEnding) || errors.Is(err, escrow.ErrDeadline) {
		u.leases = u.leases[:len(u.leases)-len(cores)]
		return
	} else if err != nil {
		u.t.Fatalf("hiring: %v", err)
	}
	if rapid.Bool().Draw(u.t, "buyer is told") {
		if err := u.buyer.tell(u.now, escrow.Hired{Leases: cores}); err != nil {
			u.t.Fatalf("telling of hires: %v", err)
		}
	}
}

func (u *trouble) supervisor() *supervisor {
	return u.supervisors[u.n("supervisor", 0, len(u.supervisors)-1)]
}

func (u *trouble) one() *rental { return u.leases[u.n("lease", 0, len(u.leases)-1)] }

// wallets are of everybody who is there.
func (u *trouble) wallets() []*escrowtest.Wallet {
	out := []*escrowtest.Wallet{u.buyer.wallet}
	for _, r := range u.leases {
		if r.claims != nil {
			out = append(out, r.claims.wallet)
		}
	}
	for _, s := range u.supervisors {
		out = append(out, s.wallet)
	}
	return out
}

func (u *trouble) step() {
	switch u.n("what", 0, 17) {
	case 0:
		u.s.Fork(u.n("blocks", 1, 4), rapid.Bool().Draw(u.t, "come back"))
	case 1:
		w := rapid.SampledFrom(u.wallets()).Draw(u.t, "whose")
		switch u.n("trouble", 0, 3) {
		case 0:
			w.Down = true
		case 1:
			w.Lose = true
		case 2:
			w.Old = u.n("moments", 1, 60)
		case 3:
			w.Slow = true
		}
		u.pass(u.n("slots", 1, u.most(4, 80)), u.land)
		if u.fair || rapid.Bool().Draw(u.t, "well again") {
			w.Down, w.Lose, w.Slow, w.Old = false, false, false, 0
		}
	case 2:
		at := u.n("write", 1, 3) * (2*u.n("after", 0, 1) - 1)
		if r := u.one(); r.claims != nil && rapid.Bool().Draw(u.t, "provider") {
			r.claims.crash = at
		} else if len(u.supervisors) > 0 && rapid.Bool().Draw(u.t, "supervisor") {
			u.supervisor().crash = at
		} else {
			u.buyer.crash = at
		}
	case 3:
		u.fund()
	case 4, 5, 6:
		u.voucher(u.one(), uint64(u.n("slots", 5, 40)))
	case 7:
		u.world.finish(u.one())
	case 8:
		if r := u.one(); !u.fair || r.claims == nil || r.closing != nil {
			u.world.retire(r)
		}
	case 9:
		if r := u.one(); !u.fair && u.n("lazy", 0, 3) == 0 {
			r.lazy = true
		}
	case 10: // the chain halts: slots pass, and nothing lands
		u.pass(u.n("slots", 1, u.most(3, 60)), func() bool { return false })
	case 11:
		if u.n("end", 0, 4) == 0 {
			u.world.end()
		}
	case 12:
		u.hire()
	case 13: // guardians are away, and come back
		u.s.Away = map[sign.Key]bool{escrowtest.Key("guardian " + string(rune('1'+u.n("who", 0, 2)))): rapid.Bool().Draw(u.t, "away")}
	case 14:
		if len(u.supervisors) > 0 && u.n("end", 0, 4) == 0 {
			u.leave(u.supervisor())
		}
	default:
		u.pass(u.n("slots", 1, 30), u.land)
	}
	u.safe()
}

func (u *trouble) most(fair, unfair int) int {
	if u.fair {
		return fair
	}
	return unfair
}

// finale: the chain works again, every lease ends one way or another, and so must everything.
func (u *trouble) finale() {
	for _, w := range u.wallets() {
		w.Down, w.Lose, w.Slow, w.Old = false, false, false, 0
	}
	for _, r := range u.leases {
		if rapid.Bool().Draw(u.t, "final receipt") {
			u.world.finish(r)
		}
		u.stop(r)
	}
	u.s.Away = nil
	for _, s := range u.supervisors {
		u.leave(s)
	}
	u.world.end()
	u.until("everything over", lifeDeadline+escrowtest.Margin+400, func() bool {
		for _, r := range u.leases {
			if r.claims == nil || r.lazy {
				continue
			}
			if over, _ := r.claims.m.Over(); !over {
				return false
			}
		}
		for _, s := range u.supervisors {
			if !s.m.Closed() {
				return false
			}
		}
		return u.closed
	})
	u.pass(escrowtest.Lag+1, always)
	u.accounts()
	u.until("every lookup table closed", svm.TableCooldown+400, u.tidy)
	for _, r := range u.leases {
		if r.claims != nil && !r.lazy && (r.settled == nil) == (r.lost == nil) {
			u.t.Fatalf("lease %d: settled %v, lost %v", r.core.Rank, r.settled, r.lost)
		}
	}
}
