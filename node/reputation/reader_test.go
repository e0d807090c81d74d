package reputation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/reputation"
)

var genesis = market.Genesis{Network: "test", Symbol: "STAR", Chain: sign.Hash{1}, SlotMillis: 400, Decimals: 9, IntervalSlots: 150, Simulated: true}

const (
	present = market.Slot(10_000_000)
	coin    = market.Amount(1_000_000_000)
)

func private(n int) sign.Private { return sign.NewPrivate([32]byte{byte(n), byte(n >> 8), 7}) }

// deal is a receipt between two peers that both have signed.
func deal(t testing.TB, n int, provider, buyer sign.Private, paid market.Amount) verify.Receipt {
	t.Helper()
	return dealAt(t, n, provider, buyer, paid, present-1900)
}

// dealAt is deal until a slot.
func dealAt(t testing.TB, n int, provider, buyer sign.Private, paid market.Amount, to market.Slot) verify.Receipt {
	t.Helper()
	r := verify.Receipt{ReceiptCore: verify.ReceiptCore{
		Version: verify.ReceiptVersion, Units: 1, Lease: market.LeaseID{byte(n >> 8), byte(n), 1}, Seq: 1, Provider: provider.Key(), Buyer: buyer.Key(),
		From: to - 100, To: to, Amount: paid, Cumulative: paid,
	}}
	r.Prev = sign.Hash(r.Lease)
	var err error
	if r.ProviderSig, err = r.Sign(genesis.Domain(), provider); err == nil {
		r.BuyerSig, err = r.Sign(genesis.Domain(), buyer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// audited is the records of others.
type audited func(of sign.Key, h sign.Hash) (Checked, error)

func (a audited) Checked(_ context.Context, of sign.Key, h sign.Hash) (Checked, error) {
	return a(of, h)
}

// world is a chain with anchors, and buyers that show what they anchored.
type world struct {
	t       testing.TB
	anchors map[chain.TxID]chain.Commitment
	jobs    map[sign.Key][]Settled
	deals   map[string][]verify.Receipt
	showers map[sign.Key]*Shower
	pages   map[sign.Key]func(Mark) (Page, error) // instead of the shower's
	down    error
	read    int // transactions
	asked   int
	records audited
}

func newWorld(t testing.TB) *world {
	return &world{t: t, anchors: map[chain.TxID]chain.Commitment{}, jobs: map[sign.Key][]Settled{}, deals: map[string][]verify.Receipt{}, showers: map[sign.Key]*Shower{},
		pages: map[sign.Key]func(Mark) (Page, error){}}
}

var quiet = slog.New(slog.DiscardHandler)

func (w *world) anchor(_ context.Context, tx chain.TxID) (chain.Commitment, error) {
	w.read++
	a, ok := w.anchors[tx]
	switch {
	case w.down != nil:
		return a, w.down
	case !ok:
		return a, chain.ErrNotFound
	}
	return a, nil
}

// settle has a buyer anchor a job's receipts in a slot.
func (w *world) settle(buyer sign.Private, slot market.Slot, receipts ...verify.Receipt) chain.TxID {
	tx, job := chain.TxID(fmt.Sprintf("tx%d", len(w.anchors))), fmt.Sprintf("job%d", len(w.anchors))
	var hashes []sign.Hash
	for _, r := range receipts {
		hashes = append(hashes, r.SignedHash())
	}
	w.anchors[tx] = chain.Commitment{Anchor: chain.Anchor{Root: chain.RootOf(hashes), Count: uint64(len(hashes))}, Slot: slot, By: buyer.Key()}
	w.jobs[buyer.Key()] = append(w.jobs[buyer.Key()], Settled{job, tx})
	w.deals[job] = receipts
	return tx
}

func (w *world) shower(of sign.Key, s store.Store) *Shower {
	sh, err := OpenShower(w.t.Context(), ShowerConfig{
		Genesis: genesis, Self: of, Store: s, Slot: func() (market.Slot, error) { return present, nil }, Own: owned{w, of},
		Anchor: w.anchor, Busy: func() bool { return false }, Log: quiet,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.showers[of] = sh
	return sh
}

// owned is the jobs of one buyer.
type owned struct {
	*world
	of sign.Key
}

func (o owned) Settled() []Settled   { return o.jobs[o.of] }
func (o owned) Records() []sign.Hash { return nil }

func (o owned) Receipts(_ context.Context, job string) ([]verify.Receipt, error) {
	return o.deals[job], nil
}

// connected is the peers that one reader is connected to.
type connected struct {
	*world
	peers []sign.Key
}

func (o connected) Connected() []sign.Key { return o.peers }

func (w *world) Ask(_ context.Context, of sign.Key, after Mark) (Page, error) {
	w.asked++
	if p := w.pages[of]; p != nil {
		return p(after)
	}
	s := w.showers[of]
	if s == nil {
		return Page{}, errors.New("nobody is there")
	}
	b, err := proto.Marshal(replyOf(s.Show(after)))
	if err != nil {
		return Page{}, err
	}
	var reply nodepb.AnchoredReply
	if err := proto.Unmarshal(b, &reply); err != nil {
		return Page{}, err
	}
	return pageOf(&reply)
}

func (w *world) reader(self sign.Key, s store.Store, peers ...sign.Key) *Reader {
	b, err := Open(w.t.Context(), Config{Genesis: genesis, Self: self, Store: s, Log: quiet, Slot: func() (market.Slot, error) { return present, nil }})
	if err != nil {
		w.t.Fatal(err)
	}
	c := ReaderConfig{Book: b, Store: s, Peers: connected{w, peers}, Anchor: w.anchor, Busy: func() bool { return false }, Log: quiet}
	if w.records != nil {
		c.Records = w.records
	}
	r, err := OpenReader(w.t.Context(), c)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// told is how many leases are known of a peer as a provider.
func told(r *Reader, of sign.Private) int {
	fs, _ := r.cfg.Book.Recent(of.Key(), 1<<20)
	return len(fs)
}

func TestWhatOthersAnchoredIsReadOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		self, buyer, provider := private(0), private(1), private(2)
		w.settle(buyer, present-1000, deal(t, 1, provider, buyer, coin), deal(t, 2, private(3), buyer, coin))
		w.settle(buyer, present-900, deal(t, 3, provider, buyer, 2*coin))
		w.settle(buyer, present-1, deal(t, 4, provider, buyer, 2*coin)) // too young to be shown
		shown := store.NewMemory()
		sh := w.shower(buyer.Key(), shown)
		if p := sh.Show(Mark{}); len(p.Receipts) != 0 {
			t.Errorf("%d leases are shown before all were looked at", len(p.Receipts))
		}
		if err := sh.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := store.NewMemory()
		r := w.reader(self.Key(), s, buyer.Key())
		read := w.read
		if err := r.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if told(r, provider) != 2 || told(r, private(3)) != 1 || told(r, buyer) != 3 || w.read-read != 2 {
			t.Errorf("%d, %d and %d facts, %d transactions", told(r, provider), told(r, private(3)), told(r, buyer), w.read-read)
		}
		facts, _ := r.cfg.Book.Recent(provider.Key(), 1)
		if f := facts[0]; f.Kind != "kept" || f.Tx == "" || f.Receipt.IsZero() || f.Rater != buyer.Key() {
			t.Errorf("%+v", f)
		}
		asked, score := w.asked, r.cfg.Book.Scores(reputation.Provider, provider.Key())[0]
		read = w.read
		for range 20 { // it was asked, and has nothing new
			if err := r.Turn(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		again := w.reader(self.Key(), s, buyer.Key()) // after a restart
		if told(again, provider) != 2 || again.cfg.Book.Scores(reputation.Provider, provider.Key())[0] != score {
			t.Errorf("%d facts after a restart", told(again, provider))
		}
		if err := again.Turn(t.Context()); err != nil || w.asked != asked || w.read != read {
			t.Errorf("%v; asked %d times more, read %d transactions", err, w.asked-asked, w.read-read)
		}
		time.Sleep(readAgain + time.Second)
		if err := again.Turn(t.Context()); err != nil || w.asked != asked+1 || w.read != read {
			t.Errorf("%v; asked %d times more, read %d transactions", err, w.asked-asked, w.read-read)
		}
		// The buyer restarts and remembers what it shows.
		later := w.shower(buyer.Key(), shown)
		if err := later.Turn(t.Context()); err != nil || w.read != read || len(later.Show(Mark{}).Receipts) != 3 {
			t.Errorf("%v; %d leases are shown, %d transactions read", err, len(later.Show(Mark{}).Receipts), w.read-read)
		}
		delete(w.jobs, buyer.Key())
		if err := later.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := w.shower(buyer.Key(), shown).list; len(left) != 0 {
			t.Errorf("%d leases are shown of jobs that are gone", len(left))
		}
	})
}

// What does not hold counts nothing, and who showed it is not asked for a day; what came before it counts.
func TestWhatDoesNotHoldCountsNothing(t *testing.T) {
	t.Parallel()
	buyer, provider, other := private(1), private(2), private(3)
	good := func(t *testing.T, w *world) chain.Testimony {
		r := deal(t, 5, provider, buyer, coin)
		tx := w.settle(buyer, present-1000, r)
		return include(buyer.Key(), []verify.Receipt{r}, w.anchors[tx], tx)[0]
	}
	signed := func(t *testing.T, w *world, r verify.Receipt) chain.Testimony { // and anchored
		tx := w.settle(buyer, present-1000, r)
		on := w.anchors[tx]
		return chain.Testimony{Receipt: r, In: chain.Include(on.Anchor, []sign.Hash{r.SignedHash()}, 0, tx, on.Slot)}
	}
	for name, c := range map[string]struct {
		make  func(t *testing.T, w *world) chain.Testimony
		why   error
		wait  time.Duration
		count int
	}{
		"good": {make: good, wait: readAgain, count: 1},
		"of another buyer": {why: ErrOrder, wait: readBad, make: func(t *testing.T, w *world) chain.Testimony {
			return signed(t, w, deal(t, 5, provider, other, coin))
		}},
		"with itself": {why: chain.ErrTestimony, wait: readBad, make: func(t *testing.T, w *world) chain.Testimony {
			return signed(t, w, deal(t, 5, buyer, buyer, coin))
		}},
		"nothing was paid": {why: chain.ErrTestimony, wait: readBad, make: func(t *testing.T, w *world) chain.Testimony {
			return signed(t, w, deal(t, 5, provider, buyer, 0))
		}},
		"the provider has not signed": {why: chain.ErrTestimony, wait: readBad, make: func(t *testing.T, w *world) chain.Testimony {
			r := deal(t, 5, provider, buyer, coin)
			r.ProviderSig[3] ^= 1
			return signed(t, w, r)
		}},
		"the buyer has not signed": {why: chain.ErrTestimony, wait: readBad, make: func(t *testing.T, w *world) chain.Testimony {
			r := deal(t, 5, provider, buyer, coin)
			r.BuyerSig[3] ^= 1
			return signed(t, w, r)
		}},
		"raised after it was anchored": {why: chain.ErrTestimony, wait: readBad, make: func(t *testing.T, w *world) chain.Testimony {
			a := good(t, w)
			a.Receipt = deal(t, 5, provider, buyer, 1000*coin)
			return a
		}},
		"of a time after its anchor": {why: chain.ErrTestimony, wait: readBad, make: func(t *testing.T, w *world) chain.Testimony {
			return signed(t, w, dealAt(t, 5, provider, buyer, coin, present-1000+proof.Ahead*market.Slot(genesis.IntervalSlots)+1))
		}},
		"an anchor of records": {why: chain.ErrTestimony, wait: readBad, make: func(t *testing.T, w *world) chain.Testimony {
			a := good(t, w)
			a.In.Anchor.Of = chain.OfRecords
			return a
		}},
		"the transaction commits to others": {why: chain.ErrUnanchored, wait: readBad, make: func(t *testing.T, w *world) chain.Testimony {
			a := good(t, w)
			a.In.Tx = w.settle(buyer, present-1000, deal(t, 6, provider, buyer, coin))
			return a
		}},
		"the transaction is of another slot": {why: chain.ErrUnanchored, wait: readBad, make: func(t *testing.T, w *world) chain.Testimony {
			a := good(t, w)
			a.In.Slot++
			return a
		}},
		"the transaction is another's": {why: chain.ErrUnanchored, wait: readBad, make: func(t *testing.T, w *world) chain.Testimony {
			a := good(t, w)
			on := w.anchors[a.In.Tx]
			on.By = other.Key()
			w.anchors[a.In.Tx] = on
			return a
		}},
		"the chain is away": {why: chain.ErrDown, wait: readMore, make: func(t *testing.T, w *world) chain.Testimony {
			a := good(t, w)
			w.down = chain.ErrDown
			return a
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				first := deal(t, 4, provider, buyer, coin)
				tx := w.settle(buyer, present-1500, first)
				before := include(buyer.Key(), []verify.Receipt{first}, w.anchors[tx], tx)[0]
				a := c.make(t, w)
				w.pages[buyer.Key()] = func(after Mark) (Page, error) {
					return Page{Receipts: [][]byte{before.Marshal(), a.Marshal()}}, nil
				}
				r := w.reader(private(0).Key(), store.NewMemory(), buyer.Key())
				if name == "the chain is away" { // not yet for the first
					r.anchors[tx] = w.anchors[tx]
				}
				if err := r.Turn(t.Context()); !errors.Is(err, c.why) {
					t.Errorf("%v, want %v", err, c.why)
				}
				if got := told(r, provider); got != 1+c.count {
					t.Errorf("%d facts, want %d", got, 1+c.count)
				}
				v := r.visits[buyer.Key()]
				if got := v.Again.Sub(v.Asked); got != c.wait {
					t.Errorf("asked again after %s, want %s", got, c.wait)
				}
			})
		})
	}
}

func TestAnAnchorThatIsNotThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		buyer, provider := private(1), private(2)
		tx := w.settle(buyer, present-1800, deal(t, 1, provider, buyer, coin))
		w.settle(buyer, present-200, deal(t, 2, provider, buyer, coin))
		young := w.settle(buyer, present-180, deal(t, 3, provider, buyer, coin))
		if err := w.shower(buyer.Key(), store.NewMemory()).Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept := w.anchors[young]
		delete(w.anchors, tx)
		delete(w.anchors, young)
		r := w.reader(private(0).Key(), store.NewMemory(), buyer.Key())
		if err := r.Turn(t.Context()); !errors.Is(err, chain.ErrNotFound) || told(r, provider) != 1 {
			t.Errorf("%v; %d facts", err, told(r, provider))
		}
		w.anchors[young] = kept // this endpoint is behind the other's
		time.Sleep(readMore)
		if err := r.Turn(t.Context()); err != nil || told(r, provider) != 2 {
			t.Errorf("%v; %d facts", err, told(r, provider))
		}
	})
}

// A buyer that shows leases for ever costs so much and no more, and what it shows is bounded: its newest leases.
func TestABuyerThatShowsForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		buyer := private(1)
		const jobs, each = 40, 10
		for j := range jobs {
			var rs []verify.Receipt
			for i := range each {
				rs = append(rs, deal(t, 1+j*each+i, private(2), buyer, coin))
			}
			w.settle(buyer, present-1800+market.Slot(j), rs...)
		}
		sh := w.shower(buyer.Key(), store.NewMemory())
		for range (jobs + showAtOnce - 1) / showAtOnce {
			if err := sh.Turn(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r := w.reader(private(0).Key(), store.NewMemory(), buyer.Key())
		turns := 0
		for ; turns < 100; turns++ {
			asked, read := w.asked, w.read
			if err := r.Turn(t.Context()); err != nil {
				t.Fatal(err)
			}
			if w.asked == asked {
				break
			}
			if w.read-read > maxAnchors {
				t.Errorf("%d transactions read in a turn", w.read-read)
			}
			time.Sleep(readMore)
		}
		if got := told(r, private(2)); got != MaxShown || turns < MaxShown/MaxPage {
			t.Errorf("%d facts in %d turns", got, turns)
		}
		for i := range 300 { // one that shows more than others do
			rec := deal(t, 5000+i, private(2), buyer, coin)
			rec.To += market.Slot(i)
			r.cfg.Book.Learn(chain.Testimony{Receipt: rec, In: chain.Include(chain.Anchor{Count: 1}, []sign.Hash{{1}}, 0, "tx", present)})
		}
		if got := told(r, private(2)); got != maxOfBuyer {
			t.Errorf("%d facts are remembered", got)
		}
	})
}

// A crash between what was learned and how far it was read forgets neither; what was not journalled is read again.
func TestAJournalThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		buyer, provider := private(1), private(2)
		w.settle(buyer, present-1800, deal(t, 1, provider, buyer, coin))
		if err := w.shower(buyer.Key(), store.NewMemory()).Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := &failing{Store: store.NewMemory(), kind: testimonyTable.Kind()}
		r := w.reader(private(0).Key(), s, buyer.Key())
		if err := r.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.kind = ""
		again := w.reader(private(0).Key(), s, buyer.Key())
		if told(again, provider) != 0 || again.visits[buyer.Key()].Mark != (Mark{}) {
			t.Fatalf("%d facts, %+v", told(again, provider), again.visits)
		}
		time.Sleep(2 * readAgain)
		if err := again.Turn(t.Context()); err != nil || told(again, provider) != 1 {
			t.Errorf("%v; %d facts", err, told(again, provider))
		}
	})
}

// failing refuses writes of one kind.
type failing struct {
	store.Store
	kind string
}

func (f *failing) Write(ctx context.Context, puts ...store.Put) error {
	for _, p := range puts {
		if p.Kind == f.kind {
			return errors.New("the disk is full")
		}
	}
	return f.Store.Write(ctx, puts...)
}

// Records are fetched a few at a time; those that cannot be judged now keep none of the others waiting.
func TestRecordsOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		provider := private(2)
		fetched := map[sign.Hash]int{}
		w.records = func(of sign.Key, h sign.Hash) (Checked, error) {
			fetched[h]++
			switch h[0] {
			case 1:
				return Checked{}, chain.ErrNotFound
			case 9:
				return Checked{}, fmt.Errorf("%w: an opening is wrong", ErrRecord)
			}
			return Checked{Provider: of, Answer: sign.Hash{h[0], 1}, At: present, Tx: "tx"}, nil
		}
		page := Page{Records: []sign.Hash{{1}, {2}, {3}}}
		w.pages[provider.Key()] = func(Mark) (Page, error) { return page, nil }
		s := store.NewMemory()
		r := w.reader(private(0).Key(), s, provider.Key())
		if err := r.Turn(t.Context()); !errors.Is(err, chain.ErrNotFound) || told(r, provider) != 1 || len(fetched) != 2 {
			t.Errorf("%v; %d facts, fetched %v", err, told(r, provider), fetched)
		}
		time.Sleep(2 * readAgain)
		r = w.reader(private(0).Key(), s, provider.Key()) // what was read is known after a restart
		if err := r.Turn(t.Context()); !errors.Is(err, chain.ErrNotFound) || told(r, provider) != 2 || fetched[sign.Hash{2}] != 1 {
			t.Errorf("%v; %d facts, fetched %v", err, told(r, provider), fetched)
		}
		facts, _ := r.cfg.Book.Recent(provider.Key(), 1)
		if f := facts[0]; f.Kind != "audit passed" || f.Record.IsZero() || f.Tx != "tx" {
			t.Errorf("%+v", f)
		}
		page = Page{Records: []sign.Hash{{9}, {4}}}
		time.Sleep(2 * readAgain)
		if err := r.Turn(t.Context()); !errors.Is(err, ErrRecord) || told(r, provider) != 2 {
			t.Errorf("%v; %d facts", err, told(r, provider))
		}
		if v := r.visits[provider.Key()]; v.Again.Sub(v.Asked) != readBad {
			t.Errorf("%+v", v)
		}
	})
}

// Peers that do not answer are asked less and less, and buyers of which strangers' notices tell keep nobody waiting.
func TestWhoIsAskedNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		friend, away := private(1), private(2)
		w.pages[friend.Key()] = func(Mark) (Page, error) { return Page{}, nil }
		r := w.reader(private(0).Key(), store.NewMemory(), friend.Key(), away.Key())
		for i := range 100 {
			r.cfg.Book.leads[private(100+i).Key()] = true
		}
		for range 4 {
			_ = r.Turn(t.Context()) // most do not answer
		}
		if r.visits[friend.Key()].Asked.IsZero() || r.visits[away.Key()].Asked.IsZero() {
			t.Error("a peer that is connected waits for strangers")
		}
		r.cfg.Book.leads = map[sign.Key]bool{}
		asked := w.asked
		for range 240 { // 4 h
			_ = r.Turn(t.Context())
			time.Sleep(time.Minute)
		}
		if n := w.asked - asked; n > 24 {
			t.Errorf("asked %d times in four hours", n)
		}
	})
}

// FuzzAnchoredStream reads what a peer may ask and answer.
func FuzzAnchoredStream(f *testing.F) {
	r := deal(f, 1, private(1), private(2), coin)
	hashes := []sign.Hash{r.SignedHash()}
	a := chain.Testimony{Receipt: r, In: chain.Include(chain.Anchor{Root: chain.RootOf(hashes), Count: 1}, hashes, 0, "tx", present)}
	for _, m := range []proto.Message{replyOf(Page{Receipts: [][]byte{a.Marshal()}, More: true, Records: []sign.Hash{{1}}}), requestOf(Mark{7, market.LeaseID{1}}), requestOf(Mark{})} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var req nodepb.AnchoredRequest
		if proto.Unmarshal(b, &req) == nil {
			if m, err := markIn(&req); err == nil && m != (Mark{}) {
				if again, err := markIn(requestOf(m)); err != nil || again != m {
					t.Errorf("%+v, %v, want %+v", again, err, m)
				}
			}
		}
		var reply nodepb.AnchoredReply
		if proto.Unmarshal(b, &reply) != nil {
			return
		}
		page, err := pageOf(&reply)
		if err != nil {
			return
		}
		w := newWorld(t)
		reader := w.reader(private(0).Key(), store.NewMemory())
		if _, err := reader.read(t.Context(), r.Buyer, Mark{}, page); err == nil && len(page.Receipts) > 0 && told(reader, private(1)) > 0 {
			t.Error("something counts that the chain has not")
		}
		if again, err := pageOf(replyOf(page)); err != nil || len(again.Receipts) != len(page.Receipts) || len(again.Records) != len(page.Records) {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

func TestNobodyShowsAJobThatIsAnchoredAsAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	buyer := private(1)
	w.settle(buyer, present-1800, deal(t, 1, private(2), buyer, coin))
	w.deals["job0"] = append(w.deals["job0"], deal(t, 2, private(2), buyer, coin)) // one more than was anchored
	sh := w.shower(buyer.Key(), store.NewMemory())
	if err := sh.Turn(t.Context()); err != nil || len(sh.Show(Mark{}).Receipts) != 0 {
		t.Errorf("%v, %d", err, len(sh.Show(Mark{}).Receipts))
	}
	if _, err := markIn(&nodepb.AnchoredRequest{Lease: []byte{1}}); err == nil || !strings.Contains(err.Error(), "1 bytes") {
		t.Error(err)
	}
}

// BenchmarkReadPage is what reading a full page of new leases takes, but for the stream, the chain and the journal.
func BenchmarkReadPage(b *testing.B) {
	w := newWorld(b)
	buyer := private(1)
	var rs []verify.Receipt
	for i := range MaxPage {
		rs = append(rs, deal(b, 1+i, private(2), buyer, coin))
	}
	w.settle(buyer, present-1800, rs...)
	s := w.shower(buyer.Key(), store.NewMemory())
	if err := s.Turn(b.Context()); err != nil {
		b.Fatal(err)
	}
	page := s.Show(Mark{})
	for b.Loop() {
		r := w.reader(private(0).Key(), store.NewMemory())
		if at, err := r.read(b.Context(), buyer.Key(), Mark{}, page); err != nil || at == (Mark{}) {
			b.Fatal(err)
		}
	}
}
