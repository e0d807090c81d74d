package provider_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/verify/meter"
)

// An order is quoted, held, signed, paid and metered; its program runs, and everything ends with the release.
func TestLeaseFromOrderToEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		time.Sleep(time.Second)
		if o := b.public(); len(o) != 1 || o[0].Units != 2 || o[0].Total != 2 || b.Out() != 1 {
			t.Errorf("published are %v", o)
		}
		_, envelope := b.Buyer.Order(nil)
		q, err := b.ask(envelope)
		if err != nil || q.Leases == 0 || q.Payout != b.config.Owner || q.OfferSeq == 0 {
			t.Fatalf("quote %+v: %v", q, err)
		}
		l := b.lease(1)
		if total, free := b.Units(); total != 2 || free != 1 || len(b.Idle()) != 1 {
			t.Errorf("%d of %d units are free", free, total)
		}
		time.Sleep(time.Second)
		if o := b.public(); o[0].Units != 1 || o[0].Seq <= q.OfferSeq {
			t.Errorf("after a lease the offer is %+v", o[0])
		}
		if s, err := b.run(l.ID, 1); err != nil || s.Seq != 1 {
			t.Fatalf("%v: %v", s, err)
		}
		time.Sleep(30 * time.Second)
		stop := &nodepb.ExecRequest{Lease: l.ID[:], Seq: 1, Op: &nodepb.ExecRequest_Stop_{Stop: &nodepb.ExecRequest_Stop{GraceMillis: 1000}}}
		if _, err := b.exec(stop); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if s, err := b.exec(stop); err != nil || s.State != nodepb.ExecState_EXEC_STATE_EXITED || s.ExitCode != 3 {
			t.Errorf("stopped as %v: %v", s, err)
		}
		if n := len(b.receipts()); n < 3 {
			t.Errorf("%d receipts in 75 slots", n)
		}
		if err := b.release(l.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		sold := b.Sold()
		if _, free := b.Units(); free != 2 || len(sold) != 1 || sold[0].Record.State != lease.Ended || sold[0].Receipts < 3 {
			t.Errorf("in the end %d units are free, sold are %+v", free, sold)
		}
		if c := b.Counts(); c.Quotes["quoted"] != 1 || c.Leases["released"] != 1 || c.Executions["exit"] != 1 {
			t.Errorf("counted %+v", c)
		}
		if s := b.Payer(l.ID).State(); s != meter.PayerSettled {
			t.Errorf("the buyer's payments are %v", s)
		}
		time.Sleep(2 * time.Hour)
		status := &nodepb.ExecRequest{Lease: l.ID[:], Seq: 1, Op: &nodepb.ExecRequest_Status_{Status: &nodepb.ExecRequest_Status{}}}
		if _, err := b.exec(status); err == nil {
			t.Error("an execution outlives its retention")
		}
	})
}

// A gossiped order is answered, but not if its buyer got a quote directly that still holds.
func TestOneQuoteForAnOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		time.Sleep(time.Second)
		over := func(o market.Order) int {
			b.gossip <- o
			synctest.Wait()
			return len(b.answered())
		}
		first, _ := b.Buyer.Order(nil)
		if n := over(first); n != 1 {
			t.Fatalf("%d answers to a gossiped order", n)
		}
		asked, envelope := b.Buyer.Order(func(o *market.Order) { o.Expires = time.Now().Add(5 * time.Minute) })
		if _, err := b.ask(envelope); err != nil {
			t.Fatal(err)
		}
		if n := over(asked); n != 1 {
			t.Error("an order with a direct quote was answered over gossip")
		}
		declined, envelope := b.Buyer.Order(func(o *market.Order) { o.Runtime = "docker" })
		if _, err := b.ask(envelope); err == nil {
			t.Fatal("a quote for a missing runtime")
		}
		if n := over(declined); n != 1 {
			t.Error("an order that was declined has an answer over gossip")
		}
		time.Sleep(2 * time.Minute)
		if n := over(asked); n != 2 {
			t.Error("an order whose direct quote expired has no answer over gossip")
		}
	})
}

// A buyer has its own leases alone, and commands nothing after their end.
func TestStrangersCommandNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		other := market.LeaseID{77}
		_, err := b.run(other, 1)
		wantRefused(t, "an unknown lease", err, "lease")
		if err := b.release(other); err != nil {
			t.Errorf("the release of an unknown lease, which is over: %v", err)
		}
		_, envelope := b.Buyer.Order(func(o *market.Order) { o.UnitsPer = 2 })
		_, err = b.reserve(1, envelope)
		if err == nil {
			t.Error("a hold of other units than the order's")
		}
		_, err = b.ask(envelope[:len(envelope)-1])
		if err == nil {
			t.Error("an order that is cut off has a quote")
		}
		_, envelope = b.Buyer.Order(func(o *market.Order) { o.Runtime = "docker" })
		if _, err := b.ask(envelope); err == nil {
			t.Error("a runtime that is not here has a quote")
		}
		o, envelope := b.Buyer.Order(nil)
		held, err := b.reserve(2, envelope)
		if err != nil {
			t.Fatal(err)
		}
		again, err := b.reserve(2, envelope)
		if err != nil || string(again.Hold) != string(held.Hold) {
			t.Errorf("the same hold again: %v", err)
		}
		time.Sleep(b.config.HoldTTL + 5*time.Second)
		if _, err := b.sign(o, held); err == nil {
			t.Error("an expired hold was signed")
		}
		l := b.lease(3)
		if err := b.release(l.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		_, err = b.run(l.ID, 1)
		wantRefused(t, "a program after the end", err, "lease")
		if c := b.Counts(); len(c.Quotes) == 0 || c.Quotes["quoted"] != 0 {
			t.Errorf("counted %+v", c)
		}
	})
}

// Leases, programs, prices and pauses outlive the process.
func TestRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.lease(1)
		if _, err := b.run(l.ID, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		before := len(b.receipts())
		if err := b.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		fake := b.config.Runtimes["wasm"].(*runtimetest.Fake)
		b.stop()
		b.config.Runtimes = map[string]runtime.Runtime{"wasm": fake.Restart()}
		b.start()
		time.Sleep(20 * time.Second)
		if after := len(b.receipts()); after <= before {
			t.Errorf("%d receipts before a restart and %d after", before, after)
		}
		if s := b.Status(); s.State != provider.Paused || s.Leases != 1 || s.Lots[0].Held != 1 || len(b.public()) != 0 {
			t.Errorf("after a restart: %+v", s)
		}
		_, envelope := b.Buyer.Order(nil)
		_, err := b.ask(envelope)
		wantRefused(t, "an order while the offers are paused", err, string(market.ReasonPaused))
		if err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := b.Status(); s.State != provider.Draining {
			t.Errorf("with a lease it is %s", s.State)
		}
		if err := b.release(l.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if s := b.Status(); s.State != provider.Drained || s.Leases != 0 {
			t.Errorf("in the end it is %s", s.State)
		}
		if err := b.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if s := b.Status(); s.State != provider.Selling || len(b.public()) != 1 {
			t.Errorf("it is %s, %d offers", s.State, len(b.public()))
		}
	})
}

// A buyer that pays no more loses its program and its lease, and the units are free again.
func TestUnpaidLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.lease(1)
		if _, err := b.run(l.ID, 1); err != nil {
			t.Fatal(err)
		}
		b.SetSilent(true)
		time.Sleep(10 * time.Minute)
		sold := b.Sold()
		if _, free := b.Units(); free != 2 || len(sold) > 0 && sold[0].Record.State.Live() {
			t.Errorf("%d units are free, sold are %+v", free, sold)
		}
		if c := b.Counts(); c.Executions["ok"]+c.Executions["exit"]+c.Executions["killed"] != 1 {
			t.Errorf("counted %+v", c)
		}
	})
}

// Withdrawn units are not sold, and come back by their serial alone.
func TestWithdrawnUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		units := b.config.Lots[0].Units
		b.Withdraw(map[market.UnitID]string{units[0].ID: "too hot", units[1].ID: "gone"})
		s := b.Status()
		if len(s.Sick) != 2 || s.Lots[0].Withdrawn != 2 || s.Lots[0].Free != 0 {
			t.Errorf("withdrawn are %+v", s.Sick)
		}
		_, envelope := b.Buyer.Order(nil)
		if _, err := b.ask(envelope); err == nil {
			t.Error("withdrawn units have a quote")
		}
		if err := b.Readmit([]string{"another"}); !errors.Is(err, provider.ErrNotWithdrawn) {
			t.Errorf("another serial: %v", err)
		}
		if err := b.Readmit([]string{units[0].Serial}); err != nil {
			t.Fatal(err)
		}
		_, envelope = b.Buyer.Order(nil)
		if _, err := b.ask(envelope); err != nil {
			t.Errorf("after they are back: %v", err)
		}
		if err := b.SetPrice(t.Context(), "gpu", 1); !errors.Is(err, provider.ErrNotSold) {
			t.Errorf("a class that is not here: %v", err)
		}
		if err := b.SetPrice(t.Context(), "cpu", 1); err == nil {
			t.Error("a free network has a price")
		}
		if b.Inventory().IsZero() || len(b.Accounts()) != 0 || b.Members() != 0 || len(b.Blobs()) != 0 {
			t.Error("wrong figures of an idle provider")
		}
	})
}
