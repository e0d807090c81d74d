package lapses

import (
	"testing"
	"time"

	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
)

func someKey(n int) sign.Key { return sign.NewPrivate([32]byte{byte(n), byte(n >> 8), 77}).Key() }

// book has the lapses of a provider, with their records and a clock of its own.
type book struct {
	t     *testing.T
	store store.Store
	now   time.Time
	Lapses
}

func newBook(t *testing.T) *book {
	b := &book{t: t, store: store.NewMemory(), now: time.Unix(1e9, 0)}
	b.load()
	return b
}

// load begins a process.
func (b *book) load() {
	b.t.Helper()
	var err error
	if b.Lapses, err = Load(b.t.Context(), b.store, b.now); err != nil {
		b.t.Fatal(err)
	}
}

func (b *book) set(to Lapses, changes []Change) {
	b.t.Helper()
	var batch journal.Batch
	for _, c := range changes {
		c.Put(&batch)
	}
	if err := batch.Commit(b.t.Context(), b.store); err != nil {
		b.t.Fatal(err)
	}
	b.Lapses = to
}

// unpaid has a peer hold units for a time and not pay.
func (b *book) unpaid(peer sign.Key, held time.Duration, lapsed bool) {
	b.t.Helper()
	b.now = b.now.Add(held)
	b.set(b.Unpaid(lease.Unpaid{Peer: peer, Newcomer: true, Held: held, Lapsed: lapsed}, b.now))
}

// waits returns how long a peer gets no units.
func (b *book) waits(peer sign.Key) time.Duration {
	until, why := b.Wait(peer, b.now)
	if why == "" {
		return 0
	}
	return until.Sub(b.now)
}

// A peer that takes units for nothing gets none for 10 minutes, then for twice as long each time, and after a restart
// too. One that gives them back at once does not wait, but it cannot have them for long that way.
func TestAttackLapses(t *testing.T) {
	t.Parallel()
	x, peer := newBook(t), someKey(1)
	x.now = x.now.Add(time.Minute)
	for range 20 {
		x.unpaid(peer, time.Second, false)
	}
	if x.waits(peer) != 0 || x.Wary(x.now) {
		t.Fatal("an honest buyer gave some back")
	}
	x.unpaid(peer, 30*time.Second, true)
	if x.waits(peer) != 0 || !x.Wary(x.now) {
		t.Errorf("after one lapse it waits %v", x.waits(peer))
	}
	for _, want := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute} {
		x.unpaid(peer, 30*time.Second, true)
		x.unpaid(peer, 0, true) // another one, of the same time
		if got := x.waits(peer); got != want || !x.Wary(x.now) {
			t.Fatalf("it waits %v, want %v", got, want)
		}
		if x.load(); x.waits(peer) != want || !x.Wary(x.now) {
			t.Fatalf("after a restart it waits %v, want %v", x.waits(peer), want)
		}
		if x.now = x.now.Add(want); x.waits(peer) != 0 {
			t.Fatal("it waits for longer")
		}
	}
	x.set(x.Paid(peer))
	for range 14 {
		x.unpaid(peer, 9*time.Second, false)
	}
	if x.waits(peer) != 10*time.Minute {
		t.Errorf("one that had units for 2 minutes, and gave them back, waits %v", x.waits(peer))
	}
	x.now = x.now.Add(2 * time.Hour)
	for i := range maxPeers + 10 {
		peer = someKey(2 + i)
		x.unpaid(peer, time.Millisecond, true)
		x.now = x.now.Add(time.Millisecond)
		x.unpaid(peer, time.Millisecond, true)
	}
	if n := x.Len(); n > maxPeers {
		t.Errorf("%d peers are remembered, at most %d", n, maxPeers)
	}
	if x.waits(peer) != 10*time.Minute {
		t.Error("the last one is forgotten")
	}
	if x.load(); x.Len() > maxPeers {
		t.Errorf("%d peers have records, at most %d", x.Len(), maxPeers)
	}
}

// Thousands of new keys that take units and give them back at once make the provider wary of newcomers.
func TestAttackManyLapses(t *testing.T) {
	t.Parallel()
	x := newBook(t)
	x.now = x.now.Add(time.Minute)
	for i := range 40 {
		x.set(x.Unpaid(lease.Unpaid{Peer: someKey(i), Newcomer: true, Held: 9 * time.Second}, x.now))
	}
	if !x.Wary(x.now) {
		t.Error("newcomers had units for 6 minutes, and gave them back")
	}
	if x.now = x.now.Add(waryFor); x.Wary(x.now) {
		t.Error("it is wary for longer than an hour")
	}
}

// A value stays as it is when another is made from it, and units held before the start are not counted.
func TestValues(t *testing.T) {
	t.Parallel()
	x, peer := newBook(t), someKey(1)
	if to, changes := x.Unpaid(lease.Unpaid{Peer: peer, Held: time.Minute, Lapsed: true}, x.now); to.Len() > 0 || changes != nil {
		t.Error("a lapse of before the start is counted")
	}
	x.now = x.now.Add(time.Hour)
	before := x.Lapses
	x.unpaid(peer, time.Second, true)
	x.unpaid(peer, time.Second, true)
	after := x.Lapses
	x.set(x.Paid(peer))
	if before.Len() != 0 || after.Len() != 1 || x.Len() != 0 {
		t.Errorf("%d, %d and %d peers, want 0, 1, 0", before.Len(), after.Len(), x.Len())
	}
	if x.load(); x.Len() != 0 {
		t.Error("a paid lapse is back after a restart")
	}
	x.set(x.Paid(peer)) // again
}
