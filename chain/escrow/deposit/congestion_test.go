package deposit_test

import (
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
)

// patient is a network whose providers have so many slots to claim in.
func patient(t escrowtest.T, response uint32) escrow.Net {
	t.Helper()
	p := escrowtest.Params()
	p.ResponseSlots = response
	return escrowtest.Net(t, p)
}

// A buyer takes its money back, and outbids every claim that bids the least: its provider bids twice as much for each claim that is lost,
// and is paid before the response slots end. A claim that bids nothing never lands.
func TestAttackCongestionKeepsClaimsOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient(t, 600), escrowtest.KeySet(t, 1, "buyer"))
	if err := w.fund(3000, 0, w.lease(60, 100)); err != nil {
		t.Fatal(err)
	}
	r := w.leases[0]
	w.until("funded", 20, func() bool { return r.claims != nil })
	w.s.Price = 20 * chain.DefaultFees().Least
	w.voucher(r, 60)
	w.pass(60, always)
	w.retire(r)
	w.until("retiring", 60, func() bool { return r.begun })
	w.stop(r)
	w.until("settled", 600, func() bool { return r.settled != nil })
	if w.paid(r) == 0 || r.lost != nil {
		t.Errorf("paid %d, lost %v", w.paid(r), r.lost)
	}
}

// Bids stop at what is at stake: a claim on next to nothing costs no more than a signature does, however full the blocks are.
func TestAttackCongestionDrainsBidder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient(t, 600), escrowtest.KeySet(t, 1, "buyer"))
	if err := w.fund(3000, 0, w.lease(60, 100)); err != nil {
		t.Fatal(err)
	}
	r := w.leases[0]
	w.until("funded", 20, func() bool { return r.claims != nil })
	w.s.Price = 1 << 62
	w.voucher(r, 60)
	w.pass(550, always)
	most, tries := uint64(0), 0
	for _, x := range w.s.Made {
		if x.Claims() == (market.LeaseID{}) {
			continue
		}
		_, units, price, ok := svm.SplitBudget(x.In)
		if !ok {
			t.Fatal("a claim without a bid")
		}
		tries++
		most = max(most, chain.BidLamports(price, units))
	}
	if tries < 5 || most > 5000 || most < 1000 {
		t.Errorf("%d claims bid up to %d lamports, with 600 base units at stake", tries, most)
	}
	w.s.Price = 0
	w.until("claimed", 100, func() bool { return w.paid(r) > 0 })
}
