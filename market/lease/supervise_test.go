package lease_test

import (
	"testing"

	"github.com/starling-network/starling/market/lease"
)

// Whoever shows a higher epoch commands a line, and nobody else does any more.
func TestSupervised(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	second := l.extend(*l.first.Core, 1300)
	a, b := buyers[1].Key(), provider.Key()
	commands := func(want [32]byte, epoch uint64) {
		t.Helper()
		for _, r := range []lease.Record{l.first, second} {
			if now, _ := l.book.Lease(r.Lease); now.Peer() != want || now.Supervision != epoch || now.Buyer != buyers[0].Key() {
				t.Fatalf("commanded by %s under epoch %d", now.Peer().Short(), now.Supervision)
			}
		}
	}
	commands(buyers[0].Key(), 0)
	for _, c := range []struct {
		ev     lease.Supervised
		passes bool
	}{
		{lease.Supervised{Lease: l.first.Lease, By: a, Epoch: 0}, false},
		{lease.Supervised{Lease: second.Lease, By: a, Epoch: 2}, false}, // a line is named by its first
		{lease.Supervised{Lease: l.first.Lease, By: a, Epoch: 2}, true},
		{lease.Supervised{Lease: l.first.Lease, By: a, Epoch: 2}, true},
		{lease.Supervised{Lease: l.first.Lease, By: b, Epoch: 2}, false}, // never two under one
		{lease.Supervised{Lease: l.first.Lease, By: b, Epoch: 1}, false},
		{lease.Supervised{Lease: l.first.Lease, By: b, Epoch: 3}, true},
		{lease.Supervised{Lease: l.first.Lease, By: a, Epoch: 2}, false},
	} {
		effects := l.step(c.ev)
		_, refused := find[lease.AnswerRefused](effects)
		if refused == c.passes {
			t.Fatalf("%+v: %v", c.ev, effects)
		}
		if p, ok := find[lease.Persist](effects); ok && p.Record.Agent != c.ev.By {
			t.Fatalf("%+v: journalled %+v", c.ev, p.Record)
		}
	}
	commands(b, 3)
	for _, by := range []struct {
		ev lease.ReleaseRequested
		st lease.State
	}{{lease.ReleaseRequested{Lease: l.first.Lease, By: buyers[0].Key()}, lease.Active}, {lease.ReleaseRequested{Lease: l.first.Lease, By: a}, lease.Active},
		{lease.ReleaseRequested{Lease: l.first.Lease, By: b}, lease.Ending}} {
		if l.step(by.ev); l.state(l.first.Lease) != by.st {
			t.Errorf("released by %s: %s", by.ev.By.Short(), l.state(l.first.Lease))
		}
	}
}

// An order's agent holds, signs and releases; its buyer is nobody's address.
func TestAgent(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	o := testOrder(buyers[0], 1, 1, 1)
	o.Agent = buyers[1].Key()
	o.ID[0]++
	held, ok := find[lease.AnswerHeld](l.step(lease.ReserveRequested{Hold: [16]byte{2}, Order: o, Price: 45}))
	if !ok {
		t.Fatal("not held")
	}
	ask := signRequest([16]byte{2}, buyers[0], draft(o, held.Units, 0, 45, l.now, 1))
	if _, ok := find[lease.AnswerRefused](l.step(ask)); !ok {
		t.Error("the buyer's key, which is no peer, took the hold")
	}
	ask.By = o.Agent
	if effects := l.step(ask); len(effects) == 0 {
		t.Error("the agent's signature was not taken")
	} else if _, ok := find[lease.AnswerSigned](effects); !ok {
		t.Errorf("the agent's request: %v", effects)
	}
}
