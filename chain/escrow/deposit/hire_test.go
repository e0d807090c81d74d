package deposit_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/deposit"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// supervisor is a guardian that hires standbys.
type supervisor struct {
	*actor[deposit.Hire]
	ended bool
	log   []escrow.Effect
}

// standbys are whom the guardians of the worlds here may hire.
func standbys() (out []account.Standby) {
	for _, name := range []string{"standby 0", "standby 1"} {
		out = append(out, account.Standby{Provider: escrowtest.Key(name), Payout: escrowtest.Key(name + " payout"), MaxRate: 10 * market.RateScale, Budget: 3000})
	}
	return out
}

// guarded is a world with three guardians, of which two sign.
func guarded(t escrowtest.T) *world {
	names := []string{"guardian 1", "guardian 2", "guardian 3"}
	return newWorld(t, escrowtest.Net(t, escrowtest.Params()), escrowtest.KeySet(t, 2, names...), names...)
}

// crowded makes the deal so large that its opening and first tranche do not fit together.
func (w *world) crowded() {
	deal := w.buyer.m.Deal()
	for len(deal.Standbys) < 4 {
		deal.Standbys = append(deal.Standbys, account.Standby{Provider: escrowtest.Key("nobody"), Payout: escrowtest.Key("nobody"), MaxRate: 1, Budget: 1})
	}
	d, err := deposit.New(w.s.Net, deal, escrowtest.Timing())
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	w.buyer.m, w.buyer.journal = d, d.Marshal()
}

// An opening that does not fit with its tranche goes before it, and comes again when it is forked away.
func TestOpeningBeforeItsTranches(t *testing.T) {
	t.Parallel()
	for name, fork := range map[string]bool{"straight": false, "forked": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := guarded(t)
			w.crowded()
			if err := w.fund(2000, 2000, w.lease(60, 100)); err != nil {
				t.Fatal(err)
			}
			if fork {
				w.until("opened", 10, func() bool { return len(w.s.Tip.Escrows) == 1 })
				w.s.Fork(1, false)
			}
			w.until("funded", 60, func() bool { return w.leases[0].claims != nil })
			w.pass(escrowtest.Lag+2, always)
			if w.s.Opens != 1 || w.s.Adds != 1 || len(w.s.Openings) != 1 {
				t.Errorf("%d opened, %d tranches, openings of %v", w.s.Opens, w.s.Adds, w.s.Openings)
			}
			w.comeBack(t, 300)
		})
	}
}

func (w *world) hiring(of string) deposit.Hiring {
	return deposit.Hiring{Order: w.buyer.m.Deal().Order, Buyer: escrowtest.Key("buyer"), Opened: w.s.Openings[len(w.s.Openings)-1], Deadline: w.buyer.m.Deadline(), Keys: w.keys,
		LeaseBuyer: w.names, Hirer: escrowtest.Key(of)}
}

// supervise has somebody hire standbys, with the guardians beside it.
func (w *world) supervise(name string) *supervisor {
	h, err := deposit.NewHire(w.s.Net, w.hiring(name), escrowtest.Timing())
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	s := &supervisor{}
	s.actor = &actor[deposit.Hire]{t: w.t, m: h, wallet: &escrowtest.Wallet{Chain: w.s, By: escrowtest.Private(name)}, others: w.voters, journal: h.Marshal(),
		hear:    func(e escrow.Effect) { s.log = append(s.log, e); w.heard(e) },
		restore: func(b []byte) (deposit.Hire, error) { return deposit.RestoreHire(b, w.s.Net, escrowtest.Timing()) },
		next:    deposit.Hire.Next}
	w.supervisors = append(w.supervisors, s)
	return s
}

// standby makes the lease of one, in an order of its own, that starts now.
func (w *world) standby(s *supervisor, which int, before, length uint64) market.LeaseCore {
	core := w.lease(before, length)
	r := w.leases[len(w.leases)-1]
	r.by, r.hirer = "standby "+string(rune('0'+which)), s
	r.core.Order = market.OrderID{9, byte(core.Rank) + 1}
	r.core.Provider, r.core.Payout = escrowtest.Key(r.by), escrowtest.Key(r.by+" payout")
	return r.core
}

// leave ends what a supervisor hired.
func (w *world) leave(s *supervisor) {
	if !s.ended {
		for _, r := range w.leases {
			if r.hirer == s {
				w.stops(r)
			}
		}
		s.ended = true
	}
	if err := s.tell(w.now, escrow.End{}); err != nil {
		w.t.Fatalf("leaving: %v", err)
	}
}

// away is a job whose first lease is funded, with so much free beside it, and whose buyer is not there any more.
func away(t *testing.T, free market.Amount) (*world, *rental) {
	t.Helper()
	w := guarded(t)
	if err := w.fund(2000, 1000+free, w.lease(60, 100)); err != nil {
		t.Fatal(err)
	}
	w.until("funded", 30, func() bool { return w.leases[0].claims != nil })
	w.pass(escrowtest.Lag+2, always)
	w.buyer.wallet.Down = true
	return w, w.leases[0]
}

// comeBack has the buyer come back and wind up; everything must end within so many slots.
func (w *world) comeBack(t *testing.T, slots int) {
	t.Helper()
	w.buyer.wallet.Down = false
	for _, r := range w.leases {
		w.stop(r)
	}
	w.end()
	w.until("closed", slots, func() bool { return w.closed })
	w.pass(escrowtest.Lag+1, always)
	w.accounts()
}

// A rank is lost while the buyer is away: a guardian hires a standby into the same escrow, it is paid, and when the buyer comes
// back all is wound up long before the deadline, the guardian's rent too.
func TestHire(t *testing.T) {
	t.Parallel()
	w, first := away(t, 3000)
	w.voucher(first, 20)
	w.pass(20, always)
	s := w.supervise("guardian 1")
	core := w.standby(s, 1, 60, 100)
	if err := s.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{core}}); err != nil {
		t.Fatal(err)
	}
	second := w.leases[1]
	w.until("hired", 40, func() bool { return second.claims != nil })
	if f := *second.funding; f.Buyer != escrowtest.Key("buyer") || f.Order != w.buyer.m.Deal().Order || f.Tranche != 1 {
		t.Errorf("funded by %+v", f)
	}
	w.voucher(second, 40)
	w.pass(40, always)
	w.finish(second)
	w.until("paid", 60, func() bool { return second.settled != nil && second.settled.Paid == second.owed })
	w.leave(s)
	w.until("the guardian's rent is back", 100, func() bool { return s.m.Closed() })
	if rent := w.s.Tip.Rent[escrowtest.Key("guardian 1")]; rent != 0 || w.s.Hires != 1 {
		t.Errorf("%d lamports of rent, %d hires", rent, w.s.Hires)
	}
	w.comeBack(t, 300)
}

// A guardian that hires is gone for good, and so is what it knew. Who is told of it by another has it back within the response
// slots; else it comes back after the deadline.
func TestHirerIsGone(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]bool{"told": true, "not told": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := away(t, 3000)
			s := w.supervise("guardian 1")
			core := w.standby(s, 0, 60, 100)
			if err := s.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{core}}); err != nil {
				t.Fatal(err)
			}
			w.until("hired", 40, func() bool { return w.leases[1].claims != nil })
			w.pass(escrowtest.Lag+2, always)
			w.leases[1].lazy = true
			s.wallet.Down = true
			if told {
				if err := w.buyer.tell(w.now, escrow.Hired{Leases: []market.LeaseCore{core}}); err != nil {
					t.Fatal(err)
				}
				w.comeBack(t, 300)
				if w.s.Slot > 1500 {
					t.Errorf("closed at slot %d", w.s.Slot)
				}
				return
			}
			w.comeBack(t, 2100)
			if w.s.Slot <= 2000+escrowtest.Margin {
				t.Errorf("closed at slot %d, before the deadline", w.s.Slot)
			}
		})
	}
}

// A guardian takes over a hire from one of which nothing was heard since: the lease stands in one tranche.
func TestHireIsTakenOver(t *testing.T) {
	t.Parallel()
	w, _ := away(t, 3000)
	first := w.supervise("guardian 1")
	core := w.standby(first, 0, 60, 100)
	if err := first.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{core}}); err != nil {
		t.Fatal(err)
	}
	w.until("hired", 40, func() bool { return w.leases[1].claims != nil })
	w.pass(escrowtest.Lag+2, always)
	second := w.supervise("guardian 2")
	if err := second.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{core}}); err != nil {
		t.Fatal(err)
	}
	w.until("taken over", 40, func() bool { _, ok := second.m.Funding(core.ID()); return ok })
	if w.s.Hires != 1 {
		t.Errorf("%d hires", w.s.Hires)
	}
	w.leave(first)
	w.leave(second)
	w.comeBack(t, 300)
}

// Two guardians hire for one lease behind their supervisor's back: the second tranche is taken back by who looks, before the lease
// ends, and all comes back before the deadline.
func TestHiredTwice(t *testing.T) {
	t.Parallel()
	w, _ := away(t, 3000)
	s := w.supervise("guardian 1")
	core := w.standby(s, 0, 60, 120)
	if err := s.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{core}}); err != nil {
		t.Fatal(err)
	}
	w.until("hired", 40, func() bool { return w.leases[1].claims != nil })
	w.pass(escrowtest.Lag+2, always)
	at := s.m.Escrow()
	second := account.TrancheAddress(w.s.Net.Program, at, 2)
	w.s.Inject(t, program.AddStandbyTranche{Payer: escrowtest.Key("guardian 2"), Escrow: at, Vault: account.VaultAddress(w.s.Net.Program, at), Signers: w.keys.Keys[:2],
		Tranche: second, Index: 2, Leaves: []program.StandbyLeaf{{Lease: core.ID(), Rate: core.Rate, Cap: core.Cap, Start: core.Start, End: core.End}}})
	if err := s.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{w.standby(s, 1, 60, 100)}}); err != nil { // a reason to look
		t.Fatal(err)
	}
	retired := func() bool { return w.s.Tip.Tranches[second].Leaves[0].Window != 0 }
	w.until("second tranche is being retired", 20, retired)
	if first := w.s.Tip.Tranches[account.TrancheAddress(w.s.Net.Program, at, 1)]; first.Leaves[0].Window != 0 {
		t.Error("the first is being retired too")
	}
	w.leave(s)
	w.until("left", 200, func() bool { return s.m.Closed() })
	w.buyer.wallet.Down = false
	for _, r := range w.leases {
		w.stop(r)
	}
	if err := w.buyer.tell(w.now, escrow.Hired{Leases: []market.LeaseCore{core}}); err != nil {
		t.Fatal(err)
	}
	w.end()
	w.until("closed", 300, func() bool { return w.closed })
	w.accounts()
}

// A hire lands, is given up by the voucher keys and closed while its supervisor sees nothing: it is not made again.
func TestHireClosedUnseen(t *testing.T) {
	t.Parallel()
	w, _ := away(t, 3000)
	s := w.supervise("guardian 1")
	core := w.standby(s, 0, 95, 100)
	w.leases[1].lazy = true
	if err := s.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{core}}); err != nil {
		t.Fatal(err)
	}
	s.wallet.Down = true
	w.pass(escrowtest.Lag+3, always)
	at := s.m.Escrow()
	tr := account.TrancheAddress(w.s.Net.Program, at, 1)
	if _, there := w.s.Final.Tranches[tr]; !there {
		t.Fatal("the hire did not land")
	}
	w.s.Inject(t, program.RetireBegin{Escrow: at, Tranche: tr, Network: w.s.Net.Address(), Signers: w.keys.Keys[:2], Index: 0})
	w.pass(escrowtest.Response+escrowtest.Lag+2, always)
	w.s.Inject(t, program.RetireFinish{Escrow: at, Tranche: tr, Leaf: tranche.LeafOf(core, 0), Proof: tranche.Proof{}})
	w.s.Inject(t, program.CloseTranche{Escrow: at, Tranche: tr, RentPayer: escrowtest.Key("guardian 1")})
	s.wallet.Down = false
	w.pass(40, always)
	if w.s.Hires != 1 || w.s.Tip.Escrows[at].Tranches != 2 {
		t.Errorf("%d hires, %d tranches", w.s.Hires, w.s.Tip.Escrows[at].Tranches)
	}
	w.leave(s)
	w.until("left", 60, func() bool { return s.m.Closed() })
}

// One guardian of three is away: the hire is signed by the other two, also when the supervisor is none of them.
func TestHireWithoutOneGuardian(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"guardian 2", "somebody"} {
		for _, gone := range []string{"guardian 1", "guardian 3"} {
			t.Run(by+", "+gone+" away", func(t *testing.T) {
				t.Parallel()
				w, _ := away(t, 3000)
				w.s.Away = map[sign.Key]bool{escrowtest.Key(gone): true}
				s := w.supervise(by)
				if err := s.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{w.standby(s, 0, 60, 100)}}); err != nil {
					t.Fatal(err)
				}
				w.until("hired", 50, func() bool { return w.leases[1].claims != nil })
				w.leave(s)
				w.until("left", 200, func() bool { return s.m.Closed() })
				w.comeBack(t, 300)
			})
		}
	}
}

// What can never be hired is void at once, and says why; what the escrow has not enough free for waits for it.
func TestHireRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*market.LeaseCore)
		reason string
	}{
		"no standby":       {func(c *market.LeaseCore) { c.Provider = escrowtest.Key("x") }, "not allowed for a standby"},
		"other payout":     {func(c *market.LeaseCore) { c.Payout = escrowtest.Key("x") }, "paid as"},
		"too dear":         {func(c *market.LeaseCore) { c.Rate++ }, "at most"},
		"beyond budget":    {func(c *market.LeaseCore) { c.Cap = 3001 }, "of its budget"},
		"began long since": {func(c *market.LeaseCore) { c.Start -= 200 }, "too long before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := away(t, 3000)
			s := w.supervise("guardian 1")
			w.standby(s, 0, 60, 100)
			r := w.leases[1]
			c.change(&r.core)
			if err := s.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{r.core}}); err != nil {
				t.Fatal(err)
			}
			w.until("void", 2, func() bool { return r.void })
			if v, ok := s.log[len(s.log)-1].(escrow.Void); !ok || !strings.Contains(v.Reason, c.reason) {
				t.Errorf("told %+v", s.log)
			}
		})
	}
	t.Run("nothing free", func(t *testing.T) {
		t.Parallel()
		w, first := away(t, 500)
		w.voucher(first, 20)
		s := w.supervise("guardian 1")
		core := w.standby(s, 0, 60, 100)
		if err := s.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{core}}); err != nil {
			t.Fatal(err)
		}
		w.pass(3, always)
		if !strings.Contains(s.m.Reason(), escrow.ErrFree.Error()) {
			t.Errorf("waits for %q", s.m.Reason())
		}
		w.s.Inject(t, program.TopUp{Escrow: s.m.Escrow(), Vault: account.VaultAddress(w.s.Net.Program, s.m.Escrow()), Source: escrowtest.Key("source"),
			Authority: escrowtest.Key("buyer"), Mint: w.s.Net.Mint, Amount: 500})
		w.until("hired", 40, func() bool { return w.leases[1].claims != nil })
		w.leave(s)
		w.comeBack(t, 300)
	})
}

// The number of a hire goes to another's tranche while its transaction is lost: it takes the next, once.
func TestHireNumberTaken(t *testing.T) {
	t.Parallel()
	w, _ := away(t, 3000)
	a, b := w.supervise("guardian 1"), w.supervise("guardian 2")
	a.wallet.Lose = true
	if err := a.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{w.standby(a, 0, 100, 120)}}); err != nil {
		t.Fatal(err)
	}
	if err := b.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{w.standby(b, 1, 100, 120)}}); err != nil {
		t.Fatal(err)
	}
	w.until("the other's", 40, func() bool { return w.leases[2].claims != nil })
	a.wallet.Lose = false
	w.until("hired by the next tranche", 80, func() bool { return w.leases[1].claims != nil })
	w.pass(escrowtest.Lag+2, always)
	if f, g := w.leases[1].funding, w.leases[2].funding; f.Tranche != 2 || g.Tranche != 1 || w.s.Hires != 2 {
		t.Errorf("tranches %d and %d, %d hires", f.Tranche, g.Tranche, w.s.Hires)
	}
	w.leave(a)
	w.leave(b)
	w.comeBack(t, 300)
}

// Nobody comes back: after deadline and margin the supervisor has its rent back, and the buyer's wallet the money.
func TestBuyerNeverComesBack(t *testing.T) {
	t.Parallel()
	w, _ := away(t, 3000)
	s := w.supervise("guardian 1")
	if err := s.tell(w.now, escrow.Fund{Leases: []market.LeaseCore{w.standby(s, 0, 60, 100)}}); err != nil {
		t.Fatal(err)
	}
	w.until("hired", 40, func() bool { return w.leases[1].claims != nil })
	w.leases[1].lazy = true
	w.s.Away = map[sign.Key]bool{escrowtest.Key("guardian 2"): true, escrowtest.Key("guardian 3"): true}
	w.leave(s)
	w.until("over", 1200, func() bool { return s.m.Closed() })
	if got := w.s.Balance(escrowtest.Key("owner")); got != 4000 || w.s.Slot <= 2000+escrowtest.Margin {
		t.Errorf("%d are back in slot %d", got, w.s.Slot)
	}
}

func TestNewHireRefuses(t *testing.T) {
	t.Parallel()
	w, _ := away(t, 0)
	for name, change := range map[string]func(*deposit.Hiring){
		"nobody":     func(h *deposit.Hiring) { h.Hirer = sign.Key{} },
		"no order":   func(h *deposit.Hiring) { h.Order = market.OrderID{} },
		"no buyer":   func(h *deposit.Hiring) { h.Buyer = sign.Key{} },
		"not opened": func(h *deposit.Hiring) { h.Opened = 0 },
		"no end":     func(h *deposit.Hiring) { h.Deadline = 0 },
		"no keys":    func(h *deposit.Hiring) { h.Keys = market.KeySet{} },
	} {
		h := w.hiring("guardian 1")
		change(&h)
		if _, err := deposit.NewHire(w.s.Net, h, escrowtest.Timing()); !errors.Is(err, escrow.ErrEvent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := w.supervise("guardian 1")
	core := w.standby(s, 0, 60, 100)
	for name, c := range map[string]struct {
		ev   escrow.Event
		want error
	}{
		"told of hires": {escrow.Hired{Leases: []market.LeaseCore{core}}, escrow.ErrEvent},
		"nine":          {escrow.Fund{Leases: make([]market.LeaseCore, 9)}, escrow.ErrTooMany},
		"zero":          {escrow.Fund{Leases: make([]market.LeaseCore, 1)}, escrow.ErrLease},
	} {
		next, effects, err := s.m.Step(w.now, c.ev)
		if !errors.Is(err, c.want) || len(effects) > 0 || !bytes.Equal(next.Marshal(), s.m.Marshal()) {
			t.Errorf("%s: %d effects, %v", name, len(effects), err)
		}
	}
	other := core
	other.Buyer = escrowtest.Key("x")
	for name, c := range map[string]struct {
		leases []market.LeaseCore
		want   error
	}{
		"nothing":     {nil, escrow.ErrEvent},
		"five":        {make([]market.LeaseCore, 5), escrow.ErrTooMany},
		"other buyer": {[]market.LeaseCore{other}, escrow.ErrLease},
		"twice":       {[]market.LeaseCore{core, core}, escrow.ErrLease},
	} {
		checkRefused(t, w.buyer.m, name, escrow.Hired{Leases: c.leases}, c.want)
	}
	// A hire's journal is no deposit's, nor the other way round.
	if _, err := deposit.Restore(s.m.Marshal(), w.s.Net, escrowtest.Timing()); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("a hire read as a deposit: %v", err)
	}
	if _, err := deposit.RestoreHire(w.buyer.m.Marshal(), w.s.Net, escrowtest.Timing()); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("a deposit read as a hire: %v", err)
	}
}
