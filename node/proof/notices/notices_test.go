package notices

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/keep"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/discovery"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/notice"
)

func private(name string) sign.Private { return sign.NewPrivate(sha256.Sum256([]byte(name))) }

var (
	genesis = market.Genesis{Network: "test", Chain: sign.Sum([]byte("chain")), Symbol: "STAR", SlotMillis: 400, IntervalSlots: 10, Simulated: true}
	seller  = private("provider")
	units   = []market.UnitID{{1}, {2}}
)

const began = market.Slot(9000 * 1000)

// table is a DHT of one place, which chooses as Values say.
type table struct {
	of discovery.Values

	mu   sync.Mutex
	m    map[string][]byte
	puts int
	gets int
	down error
}

func (t *table) PutValue(_ context.Context, _ string, key, value []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down != nil {
		return t.down
	}
	if err := t.of.Check(key, value); err != nil {
		return err
	}
	t.puts++
	if old, has := t.m[string(key)]; has {
		if i, err := t.of.Better(key, [][]byte{value, old}); err != nil || i != 0 {
			return errors.New("there is a better one")
		}
	}
	t.m[string(key)] = value
	return nil
}

func (t *table) GetValue(_ context.Context, _ string, key []byte) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gets++
	if v, has := t.m[string(key)]; has {
		return v, t.down
	}
	if t.down != nil {
		return nil, t.down
	}
	return nil, discovery.ErrNotFound
}

func (t *table) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down = err
}

// forget empties the table and says how much was there.
func (t *table) forget() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.m)
	clear(t.m)
	return n
}

func (t *table) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.puts
}

// said is how many leases are published of the first unit, and how many receipts.
func (t *table) said(tb *testing.T) (leases, receipts int) {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	at, err := notice.CalendarOf(genesis).At(seller.Key(), units[0], began)
	if err != nil {
		tb.Fatal(err)
	}
	n, err := notice.Unmarshal(t.m[string(at.Marshal())])
	if err != nil {
		tb.Fatalf("nothing is published: %v", err)
	}
	return len(n.Leases), len(n.Receipts)
}

// world is peers on one table. Time is the bubble's; slots follow it.
type world struct {
	t     *testing.T
	table *table
	start time.Time

	heard, proved atomic.Int64 // receipts and proofs that the peers told of
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, start: time.Now()}
	w.table = &table{of: w.open("table", store.NewMemory()).Values(), m: map[string][]byte{}}
	return w
}

func (w *world) slot() (market.Slot, error) {
	return began + market.Slot(time.Since(w.start)/(400*time.Millisecond)), nil
}

func (w *world) open(name string, s store.Store) *Publisher {
	w.t.Helper()
	k, err := Open(w.t.Context(), Config{
		Genesis: genesis, Self: private(name).Key(), Store: s, Slot: w.slot, Log: p2ptest.Quiet(), Proofs: w.proofs(s),
		Heard: func(n notice.Notice) { w.heard.Add(int64(len(n.Receipts))) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

// proofs opens the proofs of a journal.
func (w *world) proofs(s store.Store) *keep.Store {
	w.t.Helper()
	proofs, err := keep.Open(w.t.Context(), keep.Config{
		Genesis: genesis, Journal: s, Standing: func(sign.Key) admit.Standing { return admit.Stranger }, Log: p2ptest.Quiet(),
		Kept: func(proof.Content) { w.proved.Add(1) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return proofs
}

// peer runs one until the test ends or stop is called.
func (w *world) peer(name string, s store.Store) (k *Publisher, stop func()) {
	k = w.open(name, s)
	return k, p2ptest.Go(w.t, func(ctx context.Context) error { return k.Run(ctx, w.table) })
}

// lease is one of the buyer's, of receipts of ten slots from slot from on.
func lease(t *testing.T, buyer string, us []market.UnitID, from market.Slot, n int) (market.Lease, []verify.Receipt) {
	t.Helper()
	b := private(buyer)
	end := from + market.Slot(10*n) + 1
	core := market.LeaseCore{
		Version: market.LeaseVersion, Units: uint16(len(us)), Order: market.OrderID{1}, Buyer: b.Key(), Provider: seller.Key(), Payout: sign.Key{7},
		UnitsRoot: market.UnitsRoot(us), Rate: 1_000_000, Cap: market.Amount(end - from), Start: from, ActivateBefore: from, End: end,
	}
	sig := func(s sign.Signature, err error) sign.Signature {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	d := genesis.Domain()
	l := market.Lease{Core: core, ProviderSig: sig(core.Sign(d, seller)), BuyerSig: sig(core.Sign(d, b))}
	chain := verify.NewChain(core)
	var rs []verify.Receipt
	for i := range n {
		r, err := chain.Next(from+market.Slot(10*i), from+market.Slot(10*i+10), func(*verify.ReceiptCore) {})
		if err != nil {
			t.Fatal(err)
		}
		if chain, err = chain.Follow(r); err != nil {
			t.Fatal(err)
		}
		rs = append(rs, verify.Receipt{ReceiptCore: r, ProviderSig: sig(r.Sign(d, seller)), BuyerSig: sig(r.Sign(d, b))})
	}
	return l, rs
}

func file(k *Publisher, l market.Lease, us []market.UnitID, rs []verify.Receipt) {
	for _, r := range rs {
		k.File(l, us, r)
	}
}

func proofs(t *testing.T, k *Publisher) []proof.Entry {
	t.Helper()
	return k.cfg.Proofs.List(proof.KindDoubleSale)
}

// Both victims and a peer that watches the unit find the double sale, each on its own, though the provider publishes
// only one of the leases. Another unit of one of the leases proves nothing.
func TestFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _ := w.peer("a", store.NewMemory())
		b, _ := w.peer("b", store.NewMemory())
		p, _ := w.peer("provider", store.NewMemory())
		watcher, _ := w.peer("watcher", store.NewMemory())
		other, _ := w.peer("other", store.NewMemory())
		if err := errors.Join(watcher.Watch(t.Context(), Watched{seller.Key(), units[0]}), other.Watch(t.Context(), Watched{seller.Key(), units[1]})); err != nil {
			t.Fatal(err)
		}
		la, ra := lease(t, "a", units, began+5, 40)
		lb, rb := lease(t, "b", units[:1], began+100, 40)
		file(a, la, units, ra)
		file(p, la, units, ra)
		time.Sleep(time.Minute)
		file(b, lb, units[:1], rb)
		time.Sleep(2 * lookEvery)
		for name, k := range map[string]*Publisher{"a": a, "b": b, "watcher": watcher} {
			all := proofs(t, k)
			if len(all) != 1 || all[0].Own != (name != "watcher") {
				t.Fatalf("%s keeps %+v", name, all)
			}
			p, _, err := k.cfg.Proofs.Get(t.Context(), all[0].Hash)
			if err != nil {
				t.Fatal(err)
			}
			c, err := p.Open()
			if err == nil {
				_, err = proof.Check(c, genesis)
			}
			if err != nil {
				t.Fatalf("the proof of %s does not hold: %v", name, err)
			}
			if sold := c.(proof.DoubleSale); sold.Unit != units[0] || sold.From() >= sold.To() {
				t.Errorf("%s found %s", name, c.Summary())
			}
		}
		if all := proofs(t, other); len(all) != 0 {
			t.Errorf("who watches another unit keeps %+v", all)
		}
		if w.proved.Load() < 3 || w.heard.Load() < 2 {
			t.Errorf("told of %d proofs, and of %d receipts", w.proved.Load(), w.heard.Load())
		}
	})
}

// What is published is put again before the DHT forgets it, for some hours, and after a restart; then it ends.
func TestPublishedForHours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		disk := store.NewMemory()
		w.table.fail(discovery.ErrNoPeers)
		k, stop := w.peer("a", disk)
		l, rs := lease(t, "a", units[:1], began+5, 40)
		file(k, l, units[:1], rs)
		time.Sleep(time.Minute)
		w.table.fail(nil)
		time.Sleep(time.Minute)
		if n := w.table.count(); n != 1 {
			t.Fatalf("published %d times within a minute of finding peers", n)
		}
		stop()
		file(k, l, units[:1], rs) // after the end: nothing happens
		for range 6 {
			w.table.forget() // as the DHT does
			k, stop := w.peer("a", disk)
			time.Sleep(discovery.MaxValidity)
			stop()
			if n := w.table.forget(); n != 1 {
				t.Fatalf("%d notices an hour after a restart", n)
			}
			if len(proofs(t, k)) != 0 {
				t.Error("a proof of nothing is kept")
			}
		}
		w.peer("a", disk)
		time.Sleep(3 * time.Hour)
		w.table.forget()
		time.Sleep(time.Hour)
		if w.table.forget() != 0 {
			t.Error("published for ever")
		}
		if err := filedTable.List(t.Context(), disk, "", func(market.LeaseID, filedRecord) error { return errors.New("still there") }); err != nil {
			t.Errorf("a lease that is published no more: %v", err)
		}
	})
}

// Short leases one after another are published once all together, by their buyer; the provider finds them there.
// Nothing is put again before it has to be, and then by one of them.
func TestShortLeasesArePublishedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		disk := store.NewMemory()
		a, stop := w.peer("a", disk)
		p, _ := w.peer("provider", store.NewMemory())
		const n = 5
		for i := range n {
			l, rs := lease(t, "a", units[:1], began+market.Slot(12*i), 1)
			file(a, l, units[:1], rs)
			file(p, l, units[:1], rs)
			time.Sleep(4 * time.Second)
		}
		time.Sleep(2 * time.Minute)
		if leases, _ := w.table.said(t); leases != n || w.table.count() != 1 || w.table.gets != 2 {
			t.Errorf("%d of %d leases are published, by %d writes and %d reads", leases, n, w.table.count(), w.table.gets)
		}
		time.Sleep(republish + 2*time.Minute) // one of the buyer's renewals, none of the provider's
		if w.table.count() != 2 {
			t.Errorf("after one renewal: %d writes", w.table.count())
		}
		stop()
		_, _ = w.peer("a", disk)
		time.Sleep(2 * time.Minute)
		if w.table.count() != 3 {
			t.Errorf("a peer that starts again does not know since when its leases are there, and there are %d writes", w.table.count())
		}
	})
}

// A provider whose buyer says nothing publishes alone, and keeps what it said in the DHT.
func TestProviderPublishesAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p, _ := w.peer("provider", store.NewMemory())
		l, rs := lease(t, "a", units[:1], began+5, 1)
		file(p, l, units[:1], rs)
		time.Sleep(2 * time.Minute)
		for i := range 3 {
			if leases, _ := w.table.said(t); leases != 1 || w.table.count() != 1+i {
				t.Fatalf("%d leases by %d writes", leases, w.table.count())
			}
			time.Sleep(patience*republish + 2*pass) // less than MaxValidity, so that the DHT never forgets
		}
		if patience*republish+time.Minute > discovery.MaxValidity {
			t.Error("the DHT forgets before a provider comes again")
		}
	})
}

// Of a lease that runs for long the first receipt is published soon, the last one as well, and those between them
// together.
func TestLongLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _ := w.peer("a", store.NewMemory())
		l, rs := lease(t, "a", units[:1], began, 300)
		for i, r := range rs { // ten slots are 4 s
			if i == len(rs)-1 {
				r.ReceiptCore.Flags |= verify.ReceiptFinal
				var err error
				r.ProviderSig, err = r.ReceiptCore.Sign(genesis.Domain(), seller)
				if err == nil {
					r.BuyerSig, err = r.ReceiptCore.Sign(genesis.Domain(), private("a"))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			a.File(l, units[:1], r)
			time.Sleep(4 * time.Second)
			if i == 15 {
				if leases, receipts := w.table.said(t); leases != 1 || receipts < 8 {
					t.Errorf("after a minute %d leases and %d receipts are published", leases, receipts)
				}
			}
		}
		time.Sleep(time.Minute)
		f := a.filed[l.Core.ID()]
		if leases, receipts := w.table.said(t); leases != 1 || receipts != len(f.receipts) || receipts != notice.MaxReceipts {
			t.Errorf("%d leases and %d receipts are published, of %d", leases, receipts, len(f.receipts))
		}
		if n := w.table.count(); n > 6 { // 20 minutes
			t.Errorf("%d writes in twenty minutes", n)
		}
	})
}

// What the DHT may be asked to hold is refused when it is malformed, or of another time.
func TestValuesRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		v := w.table.of
		l, rs := lease(t, "a", units[:1], began+5, 3)
		at, err := notice.CalendarOf(genesis).At(seller.Key(), units[0], began)
		if err != nil {
			t.Fatal(err)
		}
		n, err := notice.Of(notice.CalendarOf(genesis), at, l, units[:1], rs)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // once with the signatures verified, once remembered
			if err := v.Check(at.Marshal(), n.Marshal()); err != nil {
				t.Fatal(err)
			}
		}
		elsewhere := at
		elsewhere.Unit = units[1]
		for name, key := range map[string][]byte{"another unit": elsewhere.Marshal(), "no place": []byte("x")} {
			if v.Check(key, n.Marshal()) == nil {
				t.Errorf("%s was taken", name)
			}
		}
		if _, err := v.Better([]byte("x"), [][]byte{n.Marshal()}); err == nil {
			t.Error("no place has a best value")
		}
		time.Sleep((staleHours + 2) * time.Hour)
		if err := v.Check(at.Marshal(), n.Marshal()); !errors.Is(err, ErrUntimely) {
			t.Errorf("of yesterday: %v", err)
		}
		w.start = w.start.Add((staleHours + 5) * time.Hour)
		if err := v.Check(at.Marshal(), n.Marshal()); !errors.Is(err, ErrUntimely) {
			t.Errorf("of tomorrow: %v", err)
		}
		k, err := Open(t.Context(), Config{Genesis: genesis, Store: store.NewMemory(), Slot: func() (market.Slot, error) { return 0, slots.ErrUnknown }, Log: p2ptest.Quiet(),
			Heard: func(notice.Notice) {}})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Values().Check(at.Marshal(), n.Marshal()); !errors.Is(err, slots.ErrUnknown) {
			t.Errorf("while no slot is known: %v", err)
		}
	})
}

func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		disk := store.NewMemory()
		k := w.open("a", disk)
		one, two := Watched{seller.Key(), units[0]}, Watched{seller.Key(), units[1]}
		if err := errors.Join(k.Watch(t.Context(), one), k.Watch(t.Context(), two), k.Watch(t.Context(), two), k.Unwatch(t.Context(), one)); err != nil {
			t.Fatal(err)
		}
		if got := w.open("a", disk).Watching(); len(got) != 1 || got[0] != two {
			t.Errorf("after a restart %v is watched", got)
		}
	})
}

// Power is cut before and after every write of a peer that publishes two leases and watches a unit. The next process
// publishes both once their receipts come again, and watches the unit if its user was told so.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	for _, when := range []store.When{store.Before, store.After} {
		for n := 1; ; n++ {
			crashed := false
			synctest.Test(t, func(t *testing.T) { crashed = crashAt(t, n, when) })
			if !crashed {
				if n < 5 {
					t.Errorf("only %d writes", n-1)
				}
				break
			}
		}
	}
}

func crashAt(t *testing.T, n int, when store.When) (crashed bool) {
	w := newWorld(t)
	disk := store.NewMemory()
	power := store.NewCrashing(disk)
	power.CrashAt(n, when)
	watch := Watched{Provider: private("other").Key(), Unit: units[1]}
	var leases []market.Lease
	var receipts [][]verify.Receipt
	for i := range 2 {
		l, rs := lease(t, "a", units[:1], began+market.Slot(200*i), 1)
		leases, receipts = append(leases, l), append(receipts, rs)
	}
	k, stop := w.peer("a", power)
	watches := k.Watch(t.Context(), watch) == nil
	for i, l := range leases {
		file(k, l, units[:1], receipts[i])
		time.Sleep(2 * time.Minute)
	}
	unwatched := k.Unwatch(t.Context(), watch) == nil
	stop()
	select {
	case <-power.Crashed():
		crashed = true
	default:
	}
	w.table.forget() // the DHT does not bring back what the journal lost
	next := w.open("a", disk)
	switch got := next.Watching(); {
	case watches && unwatched && len(got) != 0, watches && !unwatched && n < 4 && len(got) != 1:
		t.Errorf("crash at write %d, side %d: watched are %v", n, when, got)
	}
	for id := range next.filed {
		if !slices.ContainsFunc(leases, func(l market.Lease) bool { return l.Core.ID() == id }) || len(next.filed[id].receipts) != 1 {
			t.Errorf("crash at write %d, side %d: lease %s is %+v", n, when, id, next.filed[id])
		}
	}
	if had := len(next.filed); !crashed && had != 2 || crashed && had < min(n-2, 2) {
		t.Errorf("crash at write %d, side %d: the journal has %d leases", n, when, had)
	}
	k, stop = w.peer("a", disk)
	for i, l := range leases {
		file(k, l, units[:1], receipts[i])
	}
	time.Sleep(discovery.MaxValidity)
	stop()
	if leases, _ := w.table.said(t); leases != 2 {
		t.Errorf("crash at write %d, side %d: %d leases are published", n, when, leases)
	}
	return crashed
}
