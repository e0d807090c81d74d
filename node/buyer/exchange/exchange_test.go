package exchange

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/reputation"
)

var direct = Ask{Direct: true, Spread: true, Settle: SettleQuotes}

// Known providers are asked and quote. Collect returns once there are enough, long before the window is over.
func TestCollectDirect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		w.know(1, 2, 3)
		began := time.Now()
		prices, refused := w.buy(2, direct)
		if len(prices) < 2 || len(refused) > 0 || time.Since(began) > time.Second {
			t.Errorf("quotes %v, refused %v, in %v", prices, refused, time.Since(began))
		}
		for p, price := range prices {
			if w.Book.RTT(p) < 20*time.Millisecond || len(w.steps.of(trace.Quoted, p)) != 1 || price == 0 {
				t.Errorf("%s quotes %d after %v: %v", p.Short(), price, w.Book.RTT(p), w.steps.of(trace.Quoted, p))
			}
		}
		if len(w.published) > 0 || len(w.auctions) > 0 {
			t.Errorf("%d orders were gossiped, %d auctions are left", len(w.published), len(w.auctions))
		}
	})
}

// Quotes are collected for a while once there are enough, but no longer than until all have answered who could quote.
func TestCollectSettles(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*world)
		waits  bool
	}{
		"all quote":           {func(*world) {}, false},
		"one declines":        {func(w *world) { w.sellers[3].answer = decline(market.ReasonLimit) }, false},
		"one is busy":         {func(w *world) { w.sellers[3].answer = decline(stream.CodeBusy) }, true},
		"one is slow":         {func(w *world) { w.sellers[3].delay = time.Minute }, true},
		"there are strangers": {func(w *world) { w.size++ }, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 4)
				w.know(1, 2, 3)
				c.change(w)
				const settle = 500 * time.Millisecond
				began := time.Now()
				prices, _ := w.buy(1, Ask{Direct: true, Spread: true, Settle: settle, All: true})
				if took := time.Since(began); len(prices) < 2 || took >= settle != c.waits {
					t.Errorf("%d quotes after %v", len(prices), took)
				}
			})
		})
	}
}

// By default, only quotes are awaited whose offers would be chosen before the quotes that came: an early quote does not
// end the auction while a better offer is open, and a worse offer does not prolong it.
func TestCollectBetter(t *testing.T) {
	t.Parallel()
	const settle, later = 500 * time.Millisecond, 200 * time.Millisecond
	slow := func(sellers ...int) func(*world) { return func(w *world) { w.delay(later, sellers...) } }
	silent := func(i int) func(*world) { return func(w *world) { w.delay(time.Minute, i) } }
	declines := func(i int) func(*world) {
		return func(w *world) {
			w.delay(later, i)
			w.sellers[i].answer = decline(market.ReasonLimit)
		}
	}
	full := func(i int) func(*world) {
		return func(w *world) {
			w.delay(time.Minute, i)
			w.sellers[i].offer.Units = 0
		}
	}
	near := func(i int) func(*world) { // it answered at once the last time, but does not now
		return func(w *world) {
			w.delay(later, i)
			for _, s := range w.sellers[1:] {
				s.offer.Price = 100
			}
			w.know(i)
			w.Book.Answered(w.sellers[i].offer.Provider, time.Now(), time.Millisecond)
		}
	}
	for what, c := range map[string]struct {
		change func(w *world) // seller 1 is the cheapest, 3 the dearest
		count  uint32
		took   time.Duration
		best   int // the seller of the cheapest quote that suits
		misfit int // a seller that does not suit; 0 for none
	}{
		"the dearer ones are slow":  {slow(2, 3), 1, 0, 1, 0},
		"the cheapest is slow":      {slow(1), 1, later, 1, 0},
		"the cheapest is silent":    {silent(1), 1, settle, 2, 0},
		"the cheapest declines":     {declines(1), 1, later, 2, 0},
		"the cheapest is full":      {full(1), 1, 0, 2, 0},
		"the nearest is slow":       {near(1), 1, 0, 2, 0},
		"one of two is slow":        {slow(2), 2, later, 1, 0},
		"both are there":            {slow(3), 2, 0, 1, 0},
		"the cheapest is a misfit":  {slow(2, 3), 1, later, 2, 1},
		"the second is a misfit":    {slow(2, 3), 1, 0, 1, 2},
		"a silent misfit":           {silent(1), 1, 0, 2, 1},
		"unknown peers may be best": {func(w *world) { w.size++ }, 1, settle, 1, 0},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 4)
				c.change(w)
				w.know(1, 2, 3)
				ask, began := Ask{Direct: true, Spread: true, Settle: settle}, time.Now()
				if c.misfit > 0 {
					ask.Suits = func(q Quoted) *market.Refusal {
						if q.Quote.Provider == w.sellers[c.misfit].offer.Provider {
							return &market.Refusal{Reason: market.ReasonImage}
						}
						return nil
					}
				}
				prices, _ := w.buy(c.count, ask)
				took, best := time.Since(began), prices[w.sellers[c.best].offer.Provider]
				if took < c.took || took > c.took+150*time.Millisecond || best == 0 {
					t.Errorf("quotes %v after %v, want that of seller %d after %v", prices, took, c.best, c.took)
				}
			})
		})
	}
}

// Quotes for standbys are collected until there are as many as wanted, or the window ends.
func TestCollectStandbys(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		standbys int
		slow     time.Duration // the delay of two of the three sellers
		quotes   int
		took     time.Duration
	}{
		"none wanted":     {0, time.Second, 1, SettleQuotes},
		"both are slow":   {2, time.Second, 3, time.Second},
		"one is enough":   {1, time.Second, 2, time.Second},
		"none comes":      {2, time.Minute, 1, 2 * time.Second},
		"all are there":   {1, 0, 2, 0},
		"more than exist": {4, time.Second, 3, time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 4)
				w.know(1, 2, 3)
				for i := 2; i <= 3; i++ {
					w.sellers[i].delay = c.slow
				}
				began := time.Now()
				prices, _ := w.buy(1, Ask{Direct: true, Spread: true, Settle: SettleQuotes, Standbys: c.standbys})
				took := time.Since(began)
				if len(prices) < c.quotes || took < c.took || took > c.took+200*time.Millisecond {
					t.Errorf("%d quotes after %v, want %d after %v", len(prices), took, c.quotes, c.took)
				}
			})
		})
	}
}

// Of a class that is estimated, some more peers than are known are taken for an error of the estimate.
func TestCollectEstimate(t *testing.T) {
	t.Parallel()
	for size, waits := range map[int]bool{20: false, 21: false, 24: false, 26: true, 100: true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 20)
			for i := 1; i < 20; i++ {
				w.know(i)
			}
			w.size = size
			const settle = 500 * time.Millisecond
			began := time.Now()
			prices, _ := w.buy(1, Ask{Direct: true, Spread: true, Settle: settle, All: true})
			if took := time.Since(began); len(prices) < 19 || took >= settle != waits {
				t.Errorf("%d peers: %d quotes after %v", size, len(prices), took)
			}
		})
	}
}

// An order for more providers than are known is worth another look if the class may have as many: by the estimate, and by
// its error where it is one.
func TestScarce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 25)
		for i := 1; i <= 23; i++ { // 24 is not known
			w.know(i)
		}
		for _, c := range []struct {
			size           int
			count          uint32
			scarce, likely bool
		}{
			{25, 23, false, false}, // there are enough
			{24, 24, true, true},
			{24, 27, true, true}, // within the error of the estimate
			{24, 28, true, false},
			{24, 46, true, false}, // twice as many as are known
			{24, 47, false, false},
			{60, 71, true, true}, // by the estimate and its error
			{60, 72, false, false},
		} {
			w.size = c.size
			o, envelope := w.order(c.count)
			got := w.Collect(t.Context(), &w.steps, o, envelope, direct)
			if got.Scarce() != c.scarce || got.Likely() != c.likely {
				t.Errorf("%d leases, %d peers by estimate: scarce is %v, likely %v", c.count, c.size, got.Scarce(),
					got.Likely())
			}
		}
		few := newWorld(t, 12)
		for i := 1; i <= 10; i++ {
			few.know(i)
		}
		few.size = 11 // so few are counted
		o, envelope := few.order(11)
		if few.Collect(t.Context(), &few.steps, o, envelope, direct).Scarce() {
			t.Error("11 leases of 10 peers are scarce")
		}
	})
}

// While a buyer still meets peers of the class, an order that finds too few providers is worth another look; an order
// that none of them takes is not.
func TestGrowing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		w.know(1, 2, 3, 4)
		growing := func(count uint32, met int) bool {
			t.Helper()
			w.publishing = func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.size += met
			}
			o, envelope := w.order(count)
			got := w.Collect(t.Context(), &w.steps, o, envelope, direct)
			if got.Growing() && !got.Scarce() {
				t.Error("it is not scarce while it grows")
			}
			return got.Growing()
		}
		if !growing(40, 1) {
			t.Error("a peer was met meanwhile: want another look")
		}
		if growing(3, 1) {
			t.Error("there are enough")
		}
		if growing(40, 0) {
			t.Error("no peer was met meanwhile")
		}
		for i := 1; i <= 4; i++ {
			w.sellers[i].answer = decline(market.ReasonPrice)
		}
		if growing(40, 1) {
			t.Error("none of them takes the order")
		}
	})
}

func decline(r market.Reason) func(*market.Quote) error {
	return func(*market.Quote) error { return stream.Refuse(string(r), "not today") }
}

// Each answer that is no quote is noted in the words of its provider, and the others' quotes count.
func TestCollectRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 7)
		w.know(1, 2, 3, 4, 5, 6)
		key := func(i int) sign.Key { return w.sellers[i].offer.Provider }
		w.sellers[2].answer = func(*market.Quote) error { return stream.Refuse(string(market.ReasonLimit), "no room today") }
		w.sellers[3].delay = time.Minute
		w.sellers[4].answer = func(q *market.Quote) error { q.Order = market.OrderID{9}; return nil }
		w.sellers[5].answer = func(q *market.Quote) error { q.Class = "gpu/x"; return nil }
		w.blocked[key(6)] = "rude"
		prices, refused := w.buy(2, direct)
		if len(prices) != 1 || prices[key(1)] == 0 {
			t.Errorf("quotes %v", prices)
		}
		why := map[sign.Key]string{}
		for _, r := range refused {
			why[r.Provider] = r.Detail
		}
		for i, want := range map[int]string{2: "no room today", 3: "did not answer in time", 6: "blocked by you: rude"} {
			if why[key(i)] != want {
				t.Errorf("provider %d: %q, want %q", i, why[key(i)], want)
			}
		}
		for i, kind := range map[int]trace.Kind{2: trace.Declined, 3: trace.Silent, 4: trace.Infeasible, 5: trace.Infeasible, 6: trace.Blocked} {
			if got := w.steps.of(kind, key(i)); len(got) != 1 {
				t.Errorf("provider %d: %s %q", i, kind, got)
			}
		}
	})
}

// A provider that nobody knows is found in the DHT; one that is known already is asked once for all its offers.
func TestCollectFinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.know(1)
		w.inDHT = []market.Offer{w.sellers[1].offer, w.sellers[2].offer}
		if prices, _ := w.buy(2, direct); len(prices) != 2 || w.lookUps != 1 {
			t.Errorf("quotes %v after %d look-ups", prices, w.lookUps)
		}
		if asked := w.steps.of(trace.Asked, sign.Key{}); len(asked) != 2 {
			t.Errorf("%d providers were asked", len(asked))
		}
	})
}

// An order asks so many known providers and no more, and a cluster's none that takes part in no clusters.
func TestCollectBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 9, func(c *Config) { c.MaxAsked = 1 })
		w.sellers[1].offer.NoClusters, w.sellers[1].offer.Price = true, 1
		w.know(1, 2, 3, 4, 5, 6, 7, 8)
		prices, _ := w.buy(1, Ask{Direct: true, Cluster: true, Settle: time.Second})
		if asked := w.steps.of(trace.Asked, sign.Key{}); len(asked) != 4 || len(prices) != 4 || prices[w.sellers[1].offer.Provider] != 0 {
			t.Errorf("%d were asked, %v quoted", len(asked), prices)
		}
	})
}

// Where the things that an order began end after its window, as on a busy machine, quotes count until then, and the
// providers that sent them are not taken for such as may still answer.
func TestCollectLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.know(1, 2)
		o, envelope := w.order(2)
		w.sellers[1].delay, w.sellers[2].delay = time.Minute, time.Minute
		var late, closed error
		w.publishing = func() {
			time.Sleep(w.cfg.Window + time.Second)
			late = w.TakeQuote(w.Addr(1).ID, o.ID, w.box(1, o))
			time.Sleep(time.Second)
		}
		got := w.Collect(t.Context(), &w.steps, o, envelope, direct)
		if closed = w.TakeQuote(w.Addr(2).ID, o.ID, w.box(2, o)); closed == nil {
			t.Error("a quote is taken after the result")
		}
		if late != nil || len(got.Quotes) != 1 || got.Open() != 1 {
			t.Errorf("%v: %d quotes, %d leases are open", late, len(got.Quotes), got.Open())
		}
		if err := got.auction.add(Quoted{Quote: market.Quote{Provider: w.sellers[2].offer.Provider}}); err == nil || got.Open() != 1 {
			t.Errorf("a quote under way is added to the result: %v", err)
		}
	})
}

// An order that is collected for again keeps the quotes that it has, while they are good, and asks the others alone.
func TestCollectAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		w.know(1, 2, 3)
		o, envelope := w.order(3)
		w.sellers[2].answer = func(q *market.Quote) error { q.Expires = time.Now().Add(3 * time.Second); return nil }
		w.sellers[3].answer = decline(stream.CodeBusy)
		got := w.Collect(t.Context(), &w.steps, o, envelope, direct)
		if len(got.Quotes) != 2 {
			t.Fatalf("quotes %+v", got.Quotes)
		}
		w.sellers[3].answer = nil
		time.Sleep(2 * time.Second)
		again := direct
		again.Have = got.Quotes
		got = w.Collect(t.Context(), &w.steps, o, envelope, again)
		for i, times := range map[int]int{1: 1, 2: 2, 3: 2} { // the quote of 2 is over
			if asked := w.steps.of(trace.Asked, w.sellers[i].offer.Provider); len(asked) != times {
				t.Errorf("provider %d was asked %d times", i, len(asked))
			}
		}
		if len(got.Quotes) != 3 || len(w.published) != 1 {
			t.Errorf("%d quotes, gossiped %d times", len(got.Quotes), len(w.published))
		}
	})
}

// An order is gossiped at once if peers may sell its class that do not receive it directly. If there are none, it is
// gossiped when its direct answers were not enough in time.
func TestPublished(t *testing.T) {
	t.Parallel()
	upTo := func(n int) (known []int) {
		for i := range n {
			known = append(known, 1+i)
		}
		return known
	}
	all := upTo(3)
	for _, c := range []struct {
		name  string
		known []int
		set   func(w *world, ask *Ask)
		after time.Duration // negative: it is not gossiped
	}{
		{"all answer", all, func(w *world, _ *Ask) {}, -1},
		{"all of the largest counted class", upTo(exactPeers - 1), func(w *world, _ *Ask) {}, -1},
		{"all that are known of a larger class", upTo(exactPeers), func(w *world, _ *Ask) {}, 0},
		{"none is known", nil, func(w *world, _ *Ask) {}, 0},
		{"more than are known", all, func(w *world, _ *Ask) { w.size = 5 }, 0},
		{"more than are asked", all, func(w *world, _ *Ask) { w.cfg.MaxAsked = -1 }, 0},
		{"gossip alone", all, func(_ *world, ask *Ask) { ask.Direct = false }, 0},
		{"listed providers", all, func(w *world, ask *Ask) { ask.Only = []sign.Key{w.sellers[1].offer.Provider} }, -1},
		{"too few answers", all, func(w *world, _ *Ask) {
			for _, i := range all {
				w.sellers[i].delay = time.Second
			}
		}, searchAfter},
		{"all refuse", all, func(w *world, _ *Ask) {
			for _, i := range all {
				w.sellers[i].answer = decline("paused")
			}
		}, searchAfter},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1+max(3, len(c.known)))
				w.know(c.known...)
				ask := direct
				c.set(w, &ask)
				began, after := time.Now(), time.Duration(-1)
				w.publishing = func() { after = time.Since(began) }
				o, envelope := w.order(1)
				w.Collect(t.Context(), &w.steps, o, envelope, ask)
				w.Collect(t.Context(), &w.steps, o, envelope, ask)
				if synctest.Wait(); after != c.after || len(w.published) > 1 {
					t.Errorf("gossiped after %v, want %v; %d times", after, c.after, len(w.published))
				}
			})
		})
	}
}

// A gang that lacks one of many ranks needs one quote, and asks nobody that has a rank.
func TestCollectForOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		w.know(1, 2, 3)
		o, envelope := w.order(3)
		ask := direct
		ask.Need, ask.Skip = 1, map[sign.Key]bool{w.sellers[1].offer.Provider: true}
		w.sellers[3].delay = time.Minute
		began := time.Now()
		got := w.Collect(t.Context(), &w.steps, o, envelope, ask)
		if took := time.Since(began); took >= w.cfg.Window || len(got.Quotes) != 1 {
			t.Errorf("%d quotes in %v", len(got.Quotes), took)
		}
		if asked := w.steps.of(trace.Asked, w.sellers[1].offer.Provider); len(asked) != 0 {
			t.Error("a provider with a rank was asked")
		}
	})
}

// A provider is silent if it did not answer in its time. It is not if it quoted over gossip, or if the auction ended
// before its time.
func TestSilent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		leases uint32
		silent map[int]bool
	}{
		{"quotes enough", 1, map[int]bool{1: false, 2: false}},
		{"too few quotes", 2, map[int]bool{1: false, 2: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 4)
				w.know(1, 2)
				for i := 1; i <= 2; i++ {
					w.Book.Answered(w.sellers[i].offer.Provider, time.Now(), time.Millisecond)
				}
				w.sellers[1].delay, w.sellers[2].delay = time.Minute, time.Minute
				o, envelope := w.order(c.leases)
				go func() {
					time.Sleep(100 * time.Millisecond)
					if err := w.TakeQuote(w.Addr(3).ID, o.ID, w.box(1, o)); err != nil {
						t.Error(err)
					}
				}()
				quotes := w.Collect(t.Context(), &w.steps, o, envelope, Ask{Direct: true, Spread: true, Settle: time.Second}).Quotes
				if len(quotes) != 1 || quotes[0].Route != RouteGossip {
					t.Errorf("quotes %+v", quotes)
				}
				fresh := map[sign.Key]bool{}
				for _, k := range w.Book.Class("cpu", time.Now()) {
					fresh[k.Offer.Provider] = k.Fresh(time.Now())
				}
				for i, silent := range c.silent {
					p := w.sellers[i].offer.Provider
					if got := len(w.steps.of(trace.Silent, p)) > 0; got != silent || fresh[p] == silent {
						t.Errorf("seller %d: silent: got %v, want %v; fresh: %v", i, got, silent, fresh[p])
					}
				}
			})
		})
	}
}

// Quotes that come back over gossip are opened with the order's own key and held to the order. After the order's time
// they are counted, not taken.
func TestTakeQuote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		o, envelope := w.order(3)
		w.blocked[w.sellers[2].offer.Provider] = ""
		via := w.Addr(1).ID
		results := map[string]error{}
		go func() {
			time.Sleep(100 * time.Millisecond)
			good, blocked := w.box(1, o), w.box(2, o)
			results["good"] = w.TakeQuote(via, o.ID, good)
			results["blocked"] = w.TakeQuote(via, o.ID, blocked)
			results["torn"] = w.TakeQuote(via, o.ID, good[:len(good)-1])
			other := o
			other.ReplyKey = market.ReplyKey(sealed.Reply{1}.Public())
			results["other key"] = w.TakeQuote(via, o.ID, w.box(3, other))
			w.sellers[3].answer = func(q *market.Quote) error { q.Order[0]++; return nil }
			results["other order"] = w.TakeQuote(via, o.ID, w.box(3, o))
			w.sellers[3].answer = func(q *market.Quote) error { q.Expires = time.Now(); return nil }
			stale := w.box(3, o)
			time.Sleep(time.Second)
			results["expired"] = w.TakeQuote(via, o.ID, stale)
			if n, ok := w.Asks(o.ID); n != 3 || !ok {
				t.Errorf("quotes for %d leases are taken: %v", n, ok)
			}
		}()
		quotes := w.Collect(t.Context(), &w.steps, o, envelope, Ask{Settle: time.Second}).Quotes
		synctest.Wait()
		if len(quotes) != 1 || quotes[0].Route != RouteGossip || quotes[0].via != via {
			t.Errorf("quotes %+v", quotes)
		}
		for name, err := range results {
			var malformed *stream.Malformed
			var refused *stream.Refused
			ok := err == nil
			switch name {
			case "blocked", "expired":
				ok = errors.As(err, &refused)
			case "torn", "other key", "other order":
				ok = errors.As(err, &malformed)
			}
			if !ok {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n, ok := w.Asks(o.ID); n != 3 || !ok {
			t.Errorf("late quotes for %d leases are counted: %v", n, ok)
		}
		var late *stream.Refused
		if err := w.TakeQuote(via, o.ID, nil); !errors.As(err, &late) || late.Code != "closed" {
			t.Errorf("a late quote: %v", err)
		}
		time.Sleep(time.Minute)
		_, _ = w.order(1)
		w.turnout.Ordered(market.Order{ID: market.OrderID{1}}, time.Now())
		if _, ok := w.Asks(o.ID); ok {
			t.Error("quotes are counted for ever")
		}
	})
}

// Providers that were asked directly do not answer the gossiped order, too. They count as quotes all the same, once,
// unless they refuse.
func TestTurnoutCountsDirectQuotes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 9)
		w.know(1, 2, 3, 4, 5, 6, 7, 8)
		w.sellers[1].answer = func(*market.Quote) error { return stream.Refuse("paused", "not now") }
		w.delay(time.Second, 2, 3)
		o, envelope := w.order(1)
		w.publishing = func() {
			if err := w.TakeQuote(w.Hosts[2].ID(), o.ID, w.box(2, o)); err != nil {
				t.Errorf("over gossip: %v", err)
			}
		}
		w.Collect(t.Context(), &w.steps, o, envelope, Ask{Direct: true, Settle: SettleCluster}) // 3 is slower
		const strangers = 60                                                                    // too late, over gossip
		for range strangers {
			_ = w.TakeQuote(w.Hosts[2].ID(), o.ID, nil)
		}
		time.Sleep(5 * time.Second)
		want := match.Guess(strangers+7).Draw(1, 0)
		if draw, _ := w.Draw(o.Class, 1, 0); draw != want {
			t.Errorf("the next draw: got %d, want %d for %d providers", draw, want, strangers+7)
		}
	})
}

// An order that no neighbour receives says so.
func TestNobodyHears(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.heard = 0
		prices, refused := w.buy(1, direct)
		if ordered := w.steps.of(trace.Ordered, sign.Key{}); len(prices)+len(refused) > 0 || len(ordered) != 2 ||
			!strings.Contains(ordered[1], "no neighbour has joined") {
			t.Errorf("%v, %v, %q", prices, refused, ordered)
		}
	})
}

// Offers asks who is there: those that answer, also with a refusal, are fresh.
func TestOffers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.inDHT = []market.Offer{w.sellers[1].offer, w.sellers[2].offer}
		w.Crash(2)
		got := w.Offers(t.Context(), "cpu")
		if len(got) != 2 || !got[0].Fresh(time.Now()) || got[0].Offer.Provider != w.sellers[1].offer.Provider || got[1].Fresh(time.Now()) {
			t.Errorf("offers %+v", got)
		}
	})
}

// proofs proves as many units of an offer as were checked.
type proofs struct {
	mu      sync.Mutex
	checked map[sign.Key]uint32
	wait    time.Duration
}

func (p *proofs) Shown(o market.Offer) match.Shown {
	p.mu.Lock()
	defer p.mu.Unlock()
	return match.Shown{Units: p.checked[o.Provider]}
}

func (p *proofs) Check(ctx context.Context, o market.Offer, _ int) {
	select {
	case <-ctx.Done():
	case <-time.After(p.wait):
		p.mu.Lock()
		defer p.mu.Unlock()
		p.checked[o.Provider] = o.Proven
	}
}

func (p *proofs) CheckUnits(_ context.Context, o market.Offer, units []market.UnitID) error {
	if uint32(len(units)) > p.Shown(o).Units {
		return errors.New("unproven")
	}
	return nil
}

func (p *proofs) Rate(sign.Key, []market.UnitID) uint64 { return 42 }
func (p *proofs) Next() time.Duration                   { return time.Hour }

// On a network that audits, the records of quoted units are checked while the order is out, and unproven units do not
// count.
func TestProofs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		known := &proofs{checked: map[sign.Key]uint32{}, wait: 200 * time.Millisecond}
		w := newWorld(t, 3, func(c *Config) { c.Proofs, c.Weights.Audited = known, true })
		ctx, cancel := context.WithCancel(t.Context())
		wait := w.Start(ctx)
		proven := w.sellers[1]
		proven.offer.Proven, proven.offer.Proof = 4, sign.Hash{1}
		w.know(1, 2)
		began := time.Now()
		prices, refused := w.buy(1, direct)
		if took := time.Since(began); prices[proven.offer.Provider] == 0 || took < known.wait || took > time.Second {
			t.Errorf("quotes %v, refused %v, in %v", prices, refused, took)
		}
		if !slices.ContainsFunc(refused, func(r match.Refusal) bool { return r.Reason == market.ReasonUnproven }) {
			t.Errorf("refused %v", refused)
		}
		o, _ := w.order(1)
		q := Quoted{Quote: market.Quote{Provider: proven.offer.Provider, Class: "cpu", Leases: 9}, Offer: proven.offer}
		if n := w.leasesOf(o, q); n != 4 {
			t.Errorf("the quote is good for %d leases", n)
		}
		units := make([]market.UnitID, 4)
		if err := w.CheckUnits(ctx, o, q, units); err != nil {
			t.Errorf("proven units: %v", err)
		}
		if err := w.CheckUnits(ctx, o, q, append(units, market.UnitID{})); err == nil {
			t.Error("an unproven unit is taken")
		}
		q.Offer, q.Route = market.Offer{}, RouteStandby
		if err := w.CheckUnits(ctx, o, q, units); err != nil {
			t.Errorf("a standby's units: %v", err)
		}
		if w.ProvenRate(proven.offer.Provider, units) != 42 || w.ProvenRate(proven.offer.Provider, nil) != 0 {
			t.Error("proven rates")
		}
		cancel()
		wait()
		if w.prove(proven.offer, 1, func() {}) {
			t.Error("records are checked after the end")
		}
	})
}

// An explanation names the nearest price, the first refusals in words, and the next audit.
func TestExplain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6, func(c *Config) {
			c.Proofs, c.Weights.Audited = &proofs{checked: map[sign.Key]uint32{}}, true
		})
		w.know(1)
		o, _ := w.order(1)
		var declined []match.Refusal
		for i := 1; i < 6; i++ {
			declined = append(declined, match.Refusal{Provider: w.sellers[i].offer.Provider, Detail: "no " + string(rune('0'+i))})
		}
		text := w.Explain(t.Context(), o, &match.Unschedulable{}, nil, declined)
		for _, want := range []string{"no match for 1 × 1 units of cpu", "no 2; ", "no 4; and 1 more", "the next audit is expected in 1h0m0s", "`starling offers`"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q lacks %q", text, want)
			}
		}
		if strings.Contains(text, "no 1") {
			t.Errorf("%q names a provider twice", text)
		}
	})
}

// Candidates get the reputation of their providers, draws the network's shard.
func TestRateAndDraw(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		p := w.sellers[1].offer.Provider
		w.scores[p] = reputation.Score{Millionths: 123}
		candidates := []match.Candidate{{Offer: w.sellers[1].offer}}
		if w.Rate(candidates); candidates[0].Reputation != 123 {
			t.Errorf("candidates %+v", candidates)
		}
		if draw, shard := w.Draw("cpu", 1, 0); draw != match.DrawAll || shard != 0 {
			t.Errorf("draw %d of shard %d in a small class", draw, shard)
		}
	})
}

// Providers without an answer count by their offers, including those that receive the order over gossip only.
func TestOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 7)
	w.know(1, 2, 3, 4, 5, 6)
	dear := w.sellers[6].offer
	dear.Seq, dear.Price = 2, 2000 // over the order's ceiling
	w.Book.Add(dear)
	o, _ := w.order(6)
	p := func(i int) sign.Key { return w.sellers[i].offer.Provider }
	for spread, want := range map[bool]int{true: 3, false: 12} { // of 2, 3 and 5, with four units each
		a := w.newAuction(&w.steps, o, Ask{Spread: spread})
		a.quotes[p(1)] = Quoted{}
		a.refuse(match.Refusal{Provider: p(2), Reason: market.ReasonTimeout},
			match.Refusal{Provider: p(3), Reason: stream.CodeBusy}, match.Refusal{Provider: p(4), Reason: market.ReasonLimit})
		if n := a.open(); n != want {
			t.Errorf("with spread %v, %d may still come", spread, n)
		}
	}
}
