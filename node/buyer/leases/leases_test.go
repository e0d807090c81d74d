package leases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// A lease is paid from its first voucher to its final receipt. The journal has every receipt, and the account too.
func TestCourse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.open(w.core(nil))
	s := w.begin(l)
	s.work(45)
	is(t, "state", l.State(), meter.PayerPaying)
	is(t, "lost", l.LostReason(), "")
	s.finish()
	is(t, "settled lease", await(t, w.settled), l)
	await(t, l.Settled)
	is(t, "changed lease", await(t, w.as.changes), l.ID)
	is(t, "state", l.State(), meter.PayerSettled)
	is(t, "most", l.Most(), l.Owed())
	is(t, "lost", l.LostReason(), "the provider ended the lease")
	is(t, "alive", l.Alive(), false)

	a, err := l.Account(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := int(l.Payer().Last().Seq)
	same(t, "receipts", numbers(a.Receipts), upTo(last))
	w.mu.Lock()
	same(t, "filed", w.filed, upTo(last))
	w.mu.Unlock()
	is(t, "hashes", len(Hashes([]record.LeaseAccount{a, {Void: true, Receipts: a.Receipts}})), last)
	if v, err := verify.UnmarshalSignedVoucher(a.Voucher); err != nil || v.Cumulative != a.Owed {
		t.Errorf("voucher of %d, %v; owed %d", v.Cumulative, err, a.Owed)
	}
	final, err := w.book.Final(t.Context(), l.ID)
	if err != nil || final == nil || final.Seq != uint64(last) {
		t.Errorf("final receipt %v, %v", final, err)
	}

	is(t, "in use", w.book.InUse(l.Core.Order), true) // its deposit was not retired
	l.Retire()
	is(t, "in use", w.book.InUse(l.Core.Order), false)
	is(t, "retired", l.Retired(), true)
}

// Each malformed or foreign proposal is refused, and costs nothing.
func TestMeterRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.open(w.core(nil))
	s := w.begin(l)
	w.clock.slot.Add(10)
	cores := s.step(meter.Ticked{})
	if len(cores) != 1 {
		t.Fatalf("%d receipts", len(cores))
	}
	owed := l.Owed()
	var bad *stream.Malformed
	for name, change := range map[string]func(*nodepb.MeterRequest){
		"lease id":  func(r *nodepb.MeterRequest) { r.Lease = r.Lease[1:] },
		"signature": func(r *nodepb.MeterRequest) { r.ProviderSignature = nil },
		"receipt":   func(r *nodepb.MeterRequest) { r.Receipt = r.Receipt[1:] },
	} {
		r := s.request(cores[0])
		change(r)
		if _, err := w.book.meter(t.Context(), l.Peer, r); !errors.As(err, &bad) {
			t.Errorf("%s: %v, want a malformed request", name, err)
		}
	}
	var no *stream.Refused
	for name, c := range map[string]struct {
		change func(*verify.ReceiptCore)
		other  bool
	}{
		"a stranger":      {func(*verify.ReceiptCore) {}, true},
		"another number":  {func(c *verify.ReceiptCore) { c.Seq++ }, false},
		"a higher price":  {func(c *verify.ReceiptCore) { c.Cumulative *= 2 }, false},
		"a later slot":    {func(c *verify.ReceiptCore) { c.To += 100 }, false},
		"another's lease": {func(c *verify.ReceiptCore) { c.Lease = market.LeaseID{8} }, false},
	} {
		core, from := cores[0], l.Peer
		if c.change(&core); c.other {
			from = stranger(t)
		}
		if _, err := w.book.meter(t.Context(), from, s.request(core)); !errors.As(err, &no) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	r := s.request(cores[0])
	r.Lease = (&[32]byte{4})[:]
	if _, err := w.book.meter(t.Context(), l.Peer, r); !errors.As(err, &no) {
		t.Errorf("unknown lease: %v, want a refusal", err)
	}
	is(t, "owed", l.Owed(), owed)
	w.as.refuses = errors.New("no majority")
	if _, err := w.book.meter(t.Context(), l.Peer, s.request(cores[0])); !errors.Is(err, w.as.refuses) {
		t.Errorf("without a voucher: %v", err)
	}
	w.as.refuses = nil
	s.propose(cores)
}

// A process that begins after a crash has the lease as the journal has it.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.open(w.core(nil))
	w.begin(l).work(25)
	if err := l.Save(t.Context(), func(r *Record) { r.Active = true }); err != nil {
		t.Fatal(err)
	}
	is(t, "usable", l.Usable(), true)
	principal := func(job string) (Principal, error) {
		if job != "j1" {
			return nil, fmt.Errorf("no job %s", job)
		}
		return w.as, nil
	}
	w.clock.slot.Add(3)
	w.restart()
	all, err := w.book.Load(t.Context(), principal)
	if err != nil || len(all) != 1 || w.book.Len() != 1 {
		t.Fatal(all, err)
	}
	n := all[0]
	is(t, "same record", slices.Equal(n.Record().Lease, l.Record().Lease) && n.Record().Route == "gossip", true)
	is(t, "owed", n.Owed(), l.Owed())
	is(t, "usable", n.Usable(), true)
	is(t, "disk", n.Disk(), int64(512<<20))
	away, ahead, unpaid := n.Outage()
	is(t, "unpaid", unpaid, n.paidAt <= w.now()+market.Slot(genesis.SlotsIn(backSlack)))
	if away <= 0 || ahead < 0 {
		t.Errorf("away for %v, paid ahead for %v", away, ahead)
	}
	if away, _, _ := l.Outage(); away != 0 {
		t.Errorf("a lease of this process was away for %v", away)
	}

	w.restart()
	n.Job = "j2"
	if err := n.Save(t.Context(), func(r *Record) { r.Job = "j2" }); err != nil {
		t.Fatal(err)
	}
	if _, err := w.book.Load(t.Context(), principal); err == nil || !strings.Contains(err.Error(), "no job j2") {
		t.Errorf("a lease of an unknown job: %v", err)
	}
	if err := w.store.Write(t.Context(), Forget(l.ID)...); err != nil {
		t.Fatal(err)
	}
	if all, err := w.book.Load(t.Context(), principal); err != nil || len(all) > 0 {
		t.Errorf("forgotten: %v, %v", all, err)
	}
}

// A chain goes on with the successor when its first lease is used up, and is lost when a lease ends before its time.
func TestSuccessor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.open(w.core(func(c *market.LeaseCore) { c.End = 130 }))
	s := w.begin(l)
	core, err := l.Core.Follow(200)
	if err != nil {
		t.Fatal(err)
	}
	n, err := w.book.Successor(w.sign(core), l)
	if err != nil {
		t.Fatal(err)
	}
	is(t, "before it is prepaid", l.Find(n.ID), (*Lease)(nil))
	if err := n.Ready(sign.Key{}, nil); err != nil {
		t.Fatal(err)
	}
	w.book.Add(n)
	is(t, "prepaid", l.Find(n.ID), n)
	is(t, "first", n.First, l.ID)
	is(t, "leases", len(n.Chain()), 2)
	if _, err := n.Prepay(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.work(30)
	s.finish()
	is(t, "settled lease", await(t, w.settled), l)
	is(t, "alive", l.Alive() && l.Context().Err() == nil, true)
	is(t, "open", len(l.Open()), 1)
	is(t, "spent", l.Spent(), false)
	if err := n.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	is(t, "alive", n.Alive(), false)
	is(t, "lost", l.LostReason(), "enough")
	is(t, "reason", n.Record().Reason, "enough")
	if _, err := n.Prepay(t.Context()); !errors.Is(err, ErrUnpayable) {
		t.Errorf("a lease that was stopped: %v", err)
	}
	if l.Loss(time.Time{}) != l.Owed()+n.Owed() || l.Loss(time.Now()) > l.Loss(time.Time{}) {
		t.Errorf("loss %d, of late %d", l.Loss(time.Time{}), l.Loss(time.Now()))
	}
	l.MilliCPU()

	w.restart()
	all, err := w.book.Load(t.Context(), func(string) (Principal, error) { return w.as, nil })
	if err != nil || len(all) != 2 || all[0].chain != all[1].chain || all[0].First != l.ID {
		t.Errorf("%d leases after a restart, %v", len(all), err)
	}
	if err := w.book.Link([]*Lease{w.book.Get(n.ID)}); !errors.Is(err, errNoRoot) {
		t.Errorf("a successor alone: %v", err)
	}
}

// A chain that expired while the peer was away, or was condemned, keeps its first reason.
func TestLostChains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.open(w.core(nil))
	l.Condemn("shared")
	l.Expire(LostAway)
	is(t, "lost", l.LostReason(), "shared")
	is(t, "condemned and absent", l.Condemned() && l.Absent(), true)
	is(t, "context", l.Context().Err() != nil, true)

	n := w.open(w.core(func(c *market.LeaseCore) { c.Nonce[0]++ }))
	w.begin(n)
	n.Leave()
	n.Leave()
	await(t, n.Left)
	is(t, "lost", n.LostReason(), "") // another peer commands it
	w.book.Remove(n)
	is(t, "in the book", w.book.Get(n.ID), (*Lease)(nil))
	w.book.Reconnect(t.Context())
}

// A lease is void only once the journal has that, and once.
func TestVoidIsJournalledFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.open(w.core(nil))
	w.begin(l)
	w.book.cfg.Store = &full{Store: w.store, left: 2}
	for i := range 4 {
		again, err := l.voidOnce(t.Context())
		void := l.Record().Void
		if (err != nil) != (i < 2) || again != (i == 3) || void != (i >= 2) {
			t.Errorf("attempt %d: again %v, void %v, %v", i, again, void, err)
		}
		rec, err := Records.Get(t.Context(), w.store, l.ID)
		if err != nil || rec.Void != void {
			t.Errorf("attempt %d: void %v, in the journal: %v, %v", i, void, rec.Void, err)
		}
	}
	is(t, "owed", l.Owed(), market.Amount(0))

	n := w.open(w.core(func(c *market.LeaseCore) { c.Nonce[0]++ }))
	w.begin(n)
	if err := n.Void(t.Context(), "late"); err != nil {
		t.Fatal(err)
	}
	is(t, "void", n.Record().Void && !n.Alive(), true)
	is(t, "reason", n.Record().Reason, "late")
}

// busy is a store that calls a function in its first write.
type busy struct {
	store.Store
	first func()
}

func (b *busy) Write(ctx context.Context, puts ...store.Put) error {
	if f := b.first; f != nil {
		b.first = nil
		f()
	}
	return b.Store.Write(ctx, puts...)
}

// While the journal gets that a lease is void, readers do not wait, and another change of the record is not lost.
func TestChangedWhileVoided(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.open(w.core(nil))
	w.begin(l)
	w.book.cfg.Store = &busy{Store: w.store, first: func() {
		is(t, "void before it is journalled", l.Record().Void, false)
		if err := l.Save(t.Context(), func(r *Record) { r.Reason = "given back" }); err != nil {
			t.Error(err)
		}
	}}
	if again, err := l.voidOnce(t.Context()); again || err != nil {
		t.Errorf("again %v, %v", again, err)
	}
	rec, err := Records.Get(t.Context(), w.store, l.ID)
	if err != nil || !rec.Void || rec.Reason != "given back" || !l.Record().Void {
		t.Errorf("the journal has %+v, %v", rec, err)
	}
}

// Of two states of a lease the later one is taken over. Those that no supervisor could have left are dropped.
func TestMerge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.open(w.core(nil))
	s := w.begin(l)
	s.work(12)
	early, err := handed(l)
	if err != nil {
		t.Fatal(err)
	}
	s.work(20)
	late, err := handed(l)
	if err != nil {
		t.Fatal(err)
	}
	merge := func(mine []*Lease, handed ...Handed) []*Lease {
		t.Helper()
		out, err := w.book.Merge("j9", w.as, w.as.set, mine, handed)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for name, c := range map[string]struct {
		mine   []*Lease
		handed []Handed
		owed   market.Amount
	}{
		"nothing is known here": {nil, []Handed{late}, l.Owed()},
		"the earlier one comes": {[]*Lease{l}, []Handed{early}, l.Owed()},
		"the later one comes":   {merge(nil, early), []Handed{late}, l.Owed()},
		"none comes":            {[]*Lease{l}, nil, l.Owed()},
	} {
		out := merge(c.mine, c.handed...)
		if len(out) != 1 || out[0].Owed() != c.owed || out[0] == l {
			t.Errorf("%s: %v", name, out)
			continue
		}
		puts, err := out[0].Takeover()
		if err != nil || len(puts) != 2 || !out[0].Record().Active {
			t.Errorf("%s: %d writes, %v", name, len(puts), err)
		}
	}
	n := merge(nil, late)[0]
	is(t, "job", n.Record().Job, "j9")
	w.book.Replace([]*Lease{n})
	w.book.Resume(n)
	is(t, "alive", n.Alive(), true)

	for name, change := range map[string]func(*Handed){
		"no record":     func(h *Handed) { h.Record = []byte("{") },
		"no payer":      func(h *Handed) { h.Payer = nil },
		"other units":   func(h *Handed) { h.Record = []byte(`{"units":[]}`) },
		"a lost root":   func(h *Handed) { h.Record = edited(t, l, func(r *Record) { r.Root[0] = 1 }) },
		"a bad member":  func(h *Handed) { h.Record = edited(t, l, func(r *Record) { r.Member = &Member{} }) },
		"unsigned keys": func(h *Handed) { h.Record = edited(t, l, func(r *Record) { r.Member = w.member(l) }) },
	} {
		h := late
		change(&h)
		if out := merge(nil, h); len(out) != 0 {
			t.Errorf("%s: it was taken over", name)
		}
	}
	h := late
	h.Record = edited(t, l, func(r *Record) { r.Reason, r.Voucher = "\x1b[2Jgone", []byte{1} })
	n = merge(nil, h)[0]
	is(t, "printable", strings.Contains(n.Record().Reason, "\x1b") || n.Record().Voucher != nil, false)
}

// However leases of a chain end, it is alive while one of them can be used, and lost for good afterwards.
func TestChain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all []*Lease
		n := rapid.IntRange(1, 4).Draw(t, "leases")
		for i := range n {
			l := &Lease{ID: market.LeaseID{byte(i)}, Core: market.LeaseCore{Start: market.Slot(i)}}
			if i == 0 {
				l.chain = newChain(l)
			} else {
				l.chain = all[0].chain
			}
			all = append(all, l)
		}
		for _, i := range rapid.Permutation([]int{0, 1, 2, 3}).Draw(t, "joined") {
			if i < n {
				all[i].join(all[i])
			}
		}
		if got := all[0].Chain(); !slices.Equal(got, all) {
			t.Fatal("they are not in the order of their starts")
		}
		var lost bool
		for _, i := range rapid.Permutation([]int{0, 1, 2, 3}).Draw(t, "ended") {
			if i >= n {
				continue
			}
			all[0].over(all[i], rapid.Bool().Draw(t, "in time"), fmt.Sprint("lease ", i))
			alive := all[0].Alive()
			if lost && alive || alive != (all[0].Context().Err() == nil) || alive != (all[0].LostReason() == "") {
				t.Fatalf("alive %v after lease %d, lost before: %v, reason %q", alive, i, lost, all[0].LostReason())
			}
			lost = !alive
		}
		if !lost {
			t.Fatal("it outlives its leases")
		}
		if tail := all[0].tail(); tail.back && tail != all[0] {
			t.Fatal("the last lease was given back")
		}
	})
}

// handed is a lease as its last supervisor left it.
func handed(l *Lease) (Handed, error) {
	record, payer, err := l.Marshal()
	return Handed{Signed: l.Signed, Record: record, Payer: payer}, err
}

// edited is a lease's record with a change.
func edited(t *testing.T, l *Lease, change func(*Record)) []byte {
	t.Helper()
	rec := l.Record()
	change(&rec)
	p, err := Records.Encode(l.ID, rec)
	if err != nil {
		t.Fatal(err)
	}
	return p.Value
}

// member names an overlay key that nobody signed.
func (w *world) member(l *Lease) *Member {
	return &Member{Lease: l.Signed.Marshal(), Hold: market.HoldID{1}, Key: market.OverlayKey(sign.Hash{9})}
}
