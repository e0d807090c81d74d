package chain_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// TestMain asks rapid for more than its 100 tests of 30 steps, since they take microseconds. Flags given by hand win.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "3000", "rapid.steps": "60"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	os.Exit(m.Run())
}

func params() chain.Params {
	return chain.Params{PollEvery: time.Second, RetryAfter: 2 * time.Second}
}

func key(i int) sign.Key { return sign.Key(sign.Sum([]byte("key"), []byte{byte(i)})) }

func lease(i int) market.LeaseID { return market.LeaseID(sign.Sum([]byte("lease"), []byte{byte(i)})) }

func root(i int) sign.Hash { return sign.Sum([]byte("root"), []byte{byte(i)}) }

var buyer = sign.Key(sign.Sum([]byte("buyer")))

// world is a buyer that settles on a chain which has every trouble, and whose machine dies at any save.
type world struct {
	t       *rapid.T
	chain   *chaintest.Chain
	ledger  *chaintest.Ledger
	now     time.Time
	machine chain.Settlement
	journal []byte
	pending []chain.Effect // asked for and not yet done
	owed    []chain.Owed   // what the vouchers say: survives crashes elsewhere
	crash   string         // "", "before" or "after": what the next save does
	healed  bool           // the network loses nothing any more
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: time.Unix(1_000, 0), machine: chain.New(root(0), params())}
	fates := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) chaintest.Fate {
		return chaintest.Fate{
			Drop:      rapid.IntRange(0, 3).Draw(t, "drop") == 0,
			Delay:     rapid.SampledFrom([]int{0, 1, 20, 149, 150, 151, 400}).Draw(t, "delay"),
			LoseReply: rapid.IntRange(0, 3).Draw(t, "lose reply") == 0,
		}
	}), 1, 8).Draw(t, "fates")
	sends := 0
	w.chain = chaintest.NewChain(chaintest.Config{
		MaxPayouts: rapid.IntRange(1, 3).Draw(t, "payouts per transaction"),
		Fate: func(chain.TxID, int) chaintest.Fate {
			if sends++; w.healed {
				return chaintest.Fate{}
			}
			return fates[sends%len(fates)]
		},
	})
	w.chain.Mint(buyer, 1_000_000)
	w.ledger = w.chain.Ledger(buyer)
	w.journal = w.machine.Marshal()
	return w
}

// step feeds the machine and runs Persist at once; the other effects wait to be picked in any order.
func (w *world) step(ev chain.Event) {
	next, effects, err := w.machine.Step(w.now, ev)
	if err != nil {
		w.t.Fatalf("%T: %v", ev, err)
	}
	w.machine = next
	for _, e := range effects {
		persist, ok := e.(chain.Persist)
		switch {
		case !ok:
			w.pending = append(w.pending, e)
		case w.crash == "before":
			w.restart()
			return
		case w.crash == "after":
			w.journal = persist.State
			w.restart()
			return
		default:
			w.journal = persist.State
		}
	}
}

func (w *world) restart() {
	w.crash, w.pending = "", nil
	restored, err := chain.Restore(w.journal, params())
	if err != nil {
		w.t.Fatalf("restoring what was saved: %v", err)
	}
	if again := restored.Marshal(); !bytes.Equal(again, w.journal) {
		w.t.Fatalf("restored %d bytes come back as other %d", len(w.journal), len(again))
	}
	w.machine = restored
	w.step(chain.Ticked{})
	w.step(w.amounts())
}

func (w *world) amounts() chain.AmountsOwed {
	return chain.AmountsOwed{Owed: slices.Clone(w.owed), Root: root(len(w.owed)), Receipts: uint64(len(w.owed))}
}

// run does one of the pending effects.
func (w *world) run(i int) {
	e := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	if answer := chain.Do(w.t.Context(), w.ledger, e); answer != nil {
		w.step(answer)
	}
}

func (w *world) owe(i int, more market.Amount) {
	if i >= len(w.owed) {
		i = len(w.owed)
		w.owed = append(w.owed, chain.Owed{Lease: lease(i), To: key(i % 3)})
	}
	w.owed[i].Cumulative += more
	w.step(w.amounts())
}

// safe is what must hold at every moment.
func (w *world) safe(*rapid.T) {
	if err := w.chain.Check(); err != nil {
		w.t.Fatal(err)
	}
	for _, o := range w.owed {
		if paid := w.chain.Paid(o.Lease); paid > o.Cumulative {
			w.t.Fatalf("lease %x was paid %d and is owed %d", o.Lease[:4], paid, o.Cumulative)
		}
	}
	for _, a := range w.machine.Accounts() {
		if paid := w.chain.Paid(a.Lease); paid < a.Paid {
			w.t.Fatalf("lease %x: %d booked as final and %d on chain", a.Lease[:4], a.Paid, paid)
		}
	}
}

// TestNeverPaysTwiceNeverLoses: whatever the chain does, wherever the machine dies, in whatever order answers come: no
// lease is ever paid more than it is owed (safety), and once the trouble ends all of them are paid exactly that (liveness).
func TestNeverPaysTwiceNeverLoses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"": w.safe,
			"owe": func(t *rapid.T) {
				w.owe(rapid.IntRange(0, 6).Draw(t, "lease"), market.Amount(rapid.SampledFrom([]int{1, 1, 2, 50}).Draw(t, "more")))
			},
			"blocks": func(t *rapid.T) { w.chain.Advance(rapid.SampledFrom([]int{1, 5, 33, 152, 190}).Draw(t, "blocks")) },
			"settle": func(t *rapid.T) { // the usual course of things, which random picks seldom hit
				for range rapid.IntRange(1, 12).Draw(t, "effects") {
					if len(w.pending) > 0 {
						w.run(0)
					}
				}
				w.chain.Advance(rapid.IntRange(0, 40).Draw(t, "blocks"))
				w.now = w.now.Add(5 * time.Second)
				w.step(chain.Ticked{})
			},
			"fork": func(t *rapid.T) {
				keep := rapid.Bool().Draw(t, "keep")
				w.chain.Fork(rapid.IntRange(1, 40).Draw(t, "depth"), func(chain.TxID) bool { return keep })
				w.chain.Advance(2)
			},
			"replay": func(*rapid.T) { w.chain.Replay() },
			"down":   func(t *rapid.T) { w.chain.SetDown(rapid.Bool().Draw(t, "down")) },
			"poor":   func(t *rapid.T) { w.chain.Approve(buyer, market.Amount(rapid.IntRange(0, 100).Draw(t, "allowance"))) },
			"tick": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "seconds")) * time.Second)
				w.step(chain.Ticked{})
			},
			"run": func(t *rapid.T) {
				if len(w.pending) > 0 {
					w.run(rapid.IntRange(0, len(w.pending)-1).Draw(t, "effect"))
				}
			},
			"crash": func(t *rapid.T) { w.crash = rapid.SampledFrom([]string{"before", "after"}).Draw(t, "when") },
		})
		w.healed = true
		w.chain.SetDown(false)
		w.chain.Approve(buyer, math.MaxInt64)
		w.restart()
		for round := 0; !w.machine.Done() || len(w.pending) > 0; round++ {
			if round > 3000 {
				t.Fatalf("not settled: %s", w.machine.Reason())
			}
			for len(w.pending) > 0 {
				w.run(0)
			}
			w.chain.Advance(3)
			w.now = w.now.Add(time.Minute)
			w.step(chain.Ticked{})
			w.safe(t)
		}
		for _, o := range w.owed {
			if paid := w.chain.Paid(o.Lease); paid != o.Cumulative {
				t.Fatalf("lease %x was paid %d, owed %d", o.Lease[:4], paid, o.Cumulative)
			}
		}
	})
}

// TestCrashAtEverySave enumerates: one story with loss, expiry and a fork, cut short at each save, before and after it.
func TestCrashAtEverySave(t *testing.T) {
	t.Parallel()
	crash := errors.New("crash")
	total := story(t, func(int, func()) error { return nil })
	if total < 10 {
		t.Fatalf("the story saves only %d times", total)
	}
	for at := range total {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("save %d, after %v", at, after), func(t *testing.T) {
				t.Parallel()
				story(t, func(n int, save func()) error {
					if n != at {
						return nil
					}
					if after {
						save()
					}
					return crash
				})
			})
		}
	}
}

// story settles seven leases and checks the end; fail is asked at each save. It returns how many there were.
func story(t *testing.T, fail func(n int, save func()) error) int {
	t.Helper()
	c := chaintest.NewChain(chaintest.Config{MaxPayouts: 2, Fate: func(_ chain.TxID, sending int) chaintest.Fate {
		return chaintest.Fate{Drop: sending == 0, LoseReply: sending == 1}
	}})
	c.Mint(buyer, 1_000)
	l, now, saves := c.Ledger(buyer), time.Unix(1_000, 0), 0
	s := chain.New(root(1), params())
	journal := s.Marshal()
	save := func(state []byte) error {
		n := saves
		saves++
		if err := fail(n, func() { journal = state }); err != nil {
			return err
		}
		journal = state
		return nil
	}
	drive := func(ev chain.Event) {
		next, _, err := chain.Drive(t.Context(), l, save, s, now, ev)
		if err != nil { // died: what is in the journal is all there is
			if next, err = chain.Restore(journal, params()); err != nil {
				t.Fatal(err)
			}
		}
		s, now = next, now.Add(3*time.Second)
	}
	for round := range 120 {
		var owed []chain.Owed
		for i := range 7 {
			owed = append(owed, chain.Owed{Lease: lease(i), To: key(i), Cumulative: market.Amount(10*i + 1 + min(round/15, 4))})
		}
		drive(chain.AmountsOwed{Owed: owed, Root: root(round), Receipts: uint64(round)})
		drive(chain.Ticked{})
		switch {
		case round == 5:
			c.Advance(200) // what is in flight and was dropped expires
		case round == 9:
			c.Fork(10, func(chain.TxID) bool { return false })
			c.Replay()
		}
		c.Advance(4)
	}
	for i := range 7 {
		if paid := c.Paid(lease(i)); paid != market.Amount(10*i+5) {
			t.Errorf("lease %d was paid %d, want %d", i, paid, 10*i+5)
		}
	}
	if err := c.Check(); err != nil || !s.Done() {
		t.Errorf("done %v, %v", s.Done(), err)
	}
	return saves
}

// TestPoisonedPayout: a payout that the chain never takes holds up no other.
func TestPoisonedPayout(t *testing.T) {
	t.Parallel()
	s, now := chain.New(root(2), params()), time.Unix(1_000, 0)
	paid := map[market.LeaseID]market.Amount{}
	var owed []chain.Owed
	for i := range 4 {
		owed = append(owed, chain.Owed{Lease: lease(i), To: key(i), Cumulative: 5})
	}
	events := []chain.Event{chain.AmountsOwed{Owed: owed}}
	for range 200 {
		for len(events) > 0 {
			next, effects, err := s.Step(now, events[0])
			if err != nil {
				t.Fatal(err)
			}
			s, events = next, events[1:]
			for _, e := range effects {
				switch e := e.(type) {
				case chain.Prepare:
					events = append(events, chain.PaymentPrepared{Batch: e.Batch, Tx: chain.Prepared{ID: "x", Raw: []byte{1}, Count: len(e.Payment.Payouts)}})
				case chain.Send:
					events = append(events, chain.PaymentSent{Batch: e.Batch})
				case chain.Poll:
					state := chain.Finalized
					for _, b := range s.InFlight() {
						for _, p := range b.Payouts {
							if b.No == e.Batch && p.Lease == lease(2) {
								state = chain.Failed
							}
						}
					}
					events = append(events, chain.StatusSeen{Batch: e.Batch, Status: chain.TxStatus{State: state}})
				case chain.Settled:
					for _, p := range e.Batch.Payouts {
						paid[p.Lease] += p.Amount
					}
				}
			}
		}
		now = now.Add(time.Minute)
		events = []chain.Event{chain.Ticked{}}
	}
	for i := range 4 {
		if want := market.Amount(5); i != 2 && paid[lease(i)] != want {
			t.Errorf("lease %d got %d", i, paid[lease(i)])
		}
	}
	if paid[lease(2)] != 0 || s.Done() || s.Reason() == "" {
		t.Errorf("poisoned lease: paid %d, done %v, reason %q", paid[lease(2)], s.Done(), s.Reason())
	}
}

func TestRefusesBadAmounts(t *testing.T) {
	t.Parallel()
	s, _, err := chain.New(root(3), params()).Step(time.Unix(1, 0),
		chain.AmountsOwed{Owed: []chain.Owed{{Lease: lease(1), To: key(1), Cumulative: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	var many []chain.Owed
	for i := range chain.MaxAccounts {
		many = append(many, chain.Owed{Lease: market.LeaseID(sign.Sum(fmt.Append(nil, i))), To: key(1), Cumulative: 1})
	}
	for name, c := range map[string]struct {
		owed []chain.Owed
		want error
	}{
		"other wallet": {[]chain.Owed{{Lease: lease(1), To: key(2), Cumulative: 9}}, chain.ErrPayout},
		"no wallet":    {[]chain.Owed{{Lease: lease(2), Cumulative: 9}}, chain.ErrPayout},
		"overflow":     {[]chain.Owed{{Lease: lease(2), To: key(2), Cumulative: math.MaxUint64}}, chain.ErrOverflow},
		"too many":     {many, chain.ErrTooMany},
	} {
		next, effects, err := s.Step(time.Unix(1, 0), chain.AmountsOwed{Owed: c.owed})
		if !errors.Is(err, c.want) || len(effects) > 0 || !bytes.Equal(next.Marshal(), s.Marshal()) {
			t.Errorf("%s: %v with %d effects, want %v and nothing changed", name, err, len(effects), c.want)
		}
	}
	var invalid *chain.InvalidTransition
	if _, _, err := s.Step(time.Unix(1, 0), chain.StatusSeen{Batch: 1, Status: chain.TxStatus{State: chain.Finalized}}); !errors.As(err, &invalid) {
		t.Errorf("final before it was signed: %v", err)
	}
}
