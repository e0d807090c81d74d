package claims_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/claims"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// A provider's lease on a chain that loses transactions, forks, halts and goes away, with deaths at any write, has one
// end. Settled, the provider has at least the amount owed. Without a retirement it is never lost, and never more than
// the newest voucher is paid. No table and no rent are left.
func TestClaimsLife(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		signers := guardians[:rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "keys")]
		if len(signers) == 1 {
			signers = []string{"buyer"}
		}
		h := &hardship{life: begin(t, rapid.SampledFrom([]int{1, 4, 129}).Draw(t, "leaves")%int(1+most(signers)), 300, signers...), t: t}
		for range rapid.IntRange(3, 25).Draw(t, "steps") {
			h.step()
		}
		h.finale()
	})
}

// most is the largest tranche from which claims fit.
func most(signers []string) int {
	if len(signers) == 5 {
		return 4
	}
	return 129
}

// hardship makes a provider's life hard.
type hardship struct {
	*life
	t       *rapid.T
	seq     uint64
	slots   market.Slot // paid for by the newest voucher
	retired bool
	final   bool
	owed    market.Amount
}

func (h *hardship) n(name string, a, b int) int { return rapid.IntRange(a, b).Draw(h.t, name) }

func (h *hardship) land() bool { return h.n("lands", 0, 3) > 0 }

func (h *hardship) step() {
	switch h.n("step", 0, 9) {
	case 0:
		h.chain.Fork(h.n("blocks", 1, 3), rapid.Bool().Draw(h.t, "come back"))
	case 1:
		h.wallet.Down, h.wallet.Lose = rapid.Bool().Draw(h.t, "down"), rapid.Bool().Draw(h.t, "lose")
		h.wallet.Old = h.n("old", 0, 1) * h.n("moments", 1, 20)
		h.pass(h.n("slots", 1, 20), h.land)
		h.wallet.Down, h.wallet.Lose, h.wallet.Old = false, false, 0
	case 2:
		h.crash = h.n("write", 1, 3) * (2*h.n("after", 0, 1) - 1)
	case 3, 4, 5:
		h.pay(market.Slot(h.n("slots", 1, 60)))
	case 6:
		h.pass(h.n("halt", 1, 10), never)
	case 7:
		if h.n("retire", 0, 5) == 0 && !h.retired {
			h.retired = true
			h.life.retire()
		}
	default:
		h.pass(h.n("slots", 1, 30), h.land)
	}
}

// pay keeps a voucher for so many slots more, and says what is earned by now.
func (h *hardship) pay(slots market.Slot) {
	over, _ := h.m.Over()
	if over || h.retired || h.final || h.slots+slots > 300 {
		return
	}
	h.seq, h.slots = h.seq+1, h.slots+slots
	h.keep(h.voucher(h.seq, h.slots, 0), h.worth())
}

// worth is the amount that was worked for and promised by now.
func (h *hardship) worth() market.Amount {
	return 10 * min(market.Amount(h.chain.Slot)-market.Amount(h.core.Start), market.Amount(h.slots))
}

func (h *hardship) finale() {
	h.owed = h.worth()
	if over, _ := h.m.Over(); !over {
		if !h.retired && rapid.Bool().Draw(h.t, "final voucher") {
			h.keep(h.voucher(h.seq+1, market.Slot(h.owed/10), verify.VoucherFinal), h.owed)
		} else {
			h.over(h.owed)
		}
	}
	h.until("over", 700, h.isOver)
	h.until("done", svm.TableCooldown+300, h.isDone)
	h.pass(escrowtest.Lag+1, always)
	settled, lost := h.ended()
	paid := h.paid()
	switch {
	case len(settled) == 0 && len(lost) == 0, len(settled) > 0 && len(lost) > 0:
		h.t.Fatalf("settled %+v, lost %+v", settled, lost)
	case len(lost) > 0 && !h.retired:
		h.t.Fatalf("lost %+v", lost)
	case len(settled) > 0 && paid < min(h.owed, 10*market.Amount(h.slots)):
		h.t.Fatalf("settled with %d of %d", paid, h.owed)
	case paid > 10*market.Amount(h.slots) || h.m.Paid() > paid:
		h.t.Fatalf("paid %d, reported %d, vouchers for %d", paid, h.m.Paid(), 10*h.slots)
	}
	if rent := h.chain.Final.Rent[h.core.Provider]; rent != 0 || len(h.chain.Final.Tables) > 0 {
		h.t.Fatalf("%d lamports of rent are left, and %d tables", rent, len(h.chain.Final.Tables))
	}
}

func (h *hardship) isDone() bool { return h.m.Done() }

// Endpoints that agree on nonsense cannot bring the machine down: a step has a next state or an error of the package,
// and the state can be journalled and restored.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	good := begin(t, 4, 300, "a", "b", "c", "d", "e")
	one := begin(t, 2, 300, "buyer")
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SampledFrom([]*life{good, one}).Draw(t, "lease")
		m := l.m
		now := l.now
		for range rapid.IntRange(1, 15).Draw(t, "events") {
			now = now.Add(escrowtest.SlotTime * 8)
			next, effects, err := m.Step(now, hostile(t, l))
			if err != nil {
				if !errors.Is(err, escrow.ErrEvent) && !errors.Is(err, escrow.ErrVoucher) {
					t.Fatalf("an error of somebody else's: %v", err)
				}
				continue
			}
			for _, e := range effects {
				if p, ok := e.(escrow.Persist); ok && string(p.State) != string(next.Marshal()) {
					t.Fatal("another state is written")
				}
			}
			again, err := claims.Restore(next.Marshal(), l.chain.Net, when, escrowtest.Timing())
			if err != nil || string(again.Marshal()) != string(next.Marshal()) {
				t.Fatalf("restored: %v", err)
			}
			m = next
		}
	})
}

func hostile(t *rapid.T, l *life) escrow.Event {
	number := rapid.SampledFrom([]uint64{0, 1, 100, 990, 1000, 1100, 3000, 1 << 40, 1<<64 - 1})
	switch rapid.IntRange(0, 5).Draw(t, "event") {
	case 0:
		return escrow.Ticked{}
	case 1:
		return escrow.LeaseOver{Owed: market.Amount(number.Draw(t, "owed"))}
	case 2:
		v := l.voucher(rapid.Uint64Range(1, 4).Draw(t, "seq"), market.Slot(rapid.IntRange(0, 300).Draw(t, "slots")),
			uint8(rapid.IntRange(0, 1).Draw(t, "final"))*verify.VoucherFinal)
		if rapid.Bool().Draw(t, "forged") {
			v.Cumulative++
		}
		return escrow.VoucherKept{Voucher: v, Earned: market.Amount(number.Draw(t, "earned"))}
	case 3:
		var out escrow.Signed
		for range rapid.IntRange(0, 3).Draw(t, "results") {
			r := escrow.SignResult{No: uint32(rapid.IntRange(0, 5).Draw(t, "no")), TooLong: rapid.Bool().Draw(t, "too long")}
			if rapid.Bool().Draw(t, "signed") {
				r.Tx = chain.Prepared{ID: chain.TxID(rapid.StringN(0, 90, 90).Draw(t, "id")),
					Raw: make([]byte, rapid.SampledFrom([]int{0, 1, chain.MaxRaw, chain.MaxRaw + 1}).Draw(t, "raw"))}
			} else {
				r.Err = rapid.String().Draw(t, "error")
			}
			out.Results = append(out.Results, r)
		}
		return out
	case 4:
		return escrow.Pushed{No: uint32(rapid.IntRange(0, 5).Draw(t, "no")), Rejected: rapid.String().Draw(t, "rejected"),
			Err: rapid.SampledFrom([]string{"", "x"}).Draw(t, "error"), Gone: rapid.Bool().Draw(t, "gone"),
			Status: chain.TxStatus{State: chain.TxState(rapid.IntRange(0, int(chain.Expired)).Draw(t, "state")),
				Slot: market.Slot(number.Draw(t, "slot"))}}
	}
	view := func() escrow.View {
		v := escrow.View{Slot: market.Slot(number.Draw(t, "slot")), Tranches: map[uint16]account.Tranche{}}
		if rapid.Bool().Draw(t, "no escrow") {
			return v
		}
		e := l.chain.Final.Escrows[l.at]
		e.State = account.EscrowState(rapid.IntRange(0, 3).Draw(t, "state"))
		e.Deadline = number.Draw(t, "deadline")
		tr := l.chain.Final.Tranches[l.tranche()]
		tr.Opened = number.Draw(t, "opened")
		tr.Leaves = make([]account.LeafState, len(tr.Leaves))
		tr.Leaves[0] = account.LeafState{Paid: number.Draw(t, "paid"), Freed: number.Draw(t, "freed"),
			Window: uint32(number.Draw(t, "window"))}
		if rapid.Bool().Draw(t, "other leaves") {
			tr.Leaves = tr.Leaves[:rapid.IntRange(0, 1).Draw(t, "leaves")]
		}
		v.Escrow, v.Tranches[0] = &e, tr
		return v
	}
	return escrow.Looked{Escrow: l.at, Confirmed: view(), Final: view(), Err: rapid.SampledFrom([]string{"", "", "x"}).Draw(t, "failed")}
}
