package orders

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/gangs"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/run/runtest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/verify/reputation"
)

// desert is a market without providers. It notes the orders that are published.
type desert struct {
	mu        sync.Mutex
	published []market.Order
	reached   chan struct{} // one for each order
}

func (d *desert) Publish(_ context.Context, o market.Order, _ []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published = append(d.published, o)
	d.reached <- struct{}{}
	return 1, nil
}

func (d *desert) Find(context.Context, market.Class, []market.Region, int) ([]market.Offer, error) {
	return nil, nil
}
func (d *desert) Size(market.Class) int     { return 0 }
func (d *desert) Shard(market.Class) uint32 { return 0 }
func (d *desert) Scores(_ reputation.Role, peers ...sign.Key) []reputation.Score {
	return make([]reputation.Score, len(peers))
}

func (d *desert) orders() []market.Order {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.published)
}

// unmeasured fails the test where a gang of no cluster reports paths.
type unmeasured struct{ t *testing.T }

func (u unmeasured) Formed(run.Event, *gangs.Gang) {
	u.t.Error("paths of a job that is no cluster are reported")
}

// world is an office in a desert.
type world struct {
	*runtest.World
	desert *desert
	office *Office
}

func newWorld(t *testing.T, st store.Store) *world {
	t.Helper()
	w := &world{World: runtest.New(t, st), desert: &desert{reached: make(chan struct{}, 100)}}
	x := exchange.New(exchange.Config{
		Host: w.Host, Genesis: runtest.Genesis, Self: runtest.Self.Key(), Secret: [32]byte{7}, Network: w.desert,
		Ratings: w.desert, Blocked: func(sign.Key) (string, bool) { return "", false },
		Weights: exchange.WeightsFor(runtest.Genesis, exchange.Weights{}), Window: 100 * time.Millisecond,
		Log: p2ptest.Quiet(),
	})
	stop := x.Start(t.Context())
	t.Cleanup(stop)
	w.office = Open(Config{
		Host: w.Host, Genesis: runtest.Genesis, Key: runtest.Self, Store: st, Clock: w.World, Secret: [32]byte{7},
		Weights: exchange.WeightsFor(runtest.Genesis, exchange.Weights{}), Exchange: x, Leases: w.Book, Wallet: pay.Free{},
		Tasks: &w.Tasks, Log: p2ptest.Quiet(),
	})
	return w
}

func (w *world) of(t *testing.T, ranks uint32, change func(*record.Job)) (*Orders, *runtest.Parts) {
	t.Helper()
	parts := runtest.NewParts()
	j := w.Open(runtest.Spec(ranks), parts, nil, change)
	return w.office.Of(j, unmeasured{t}), parts
}

// An order names its job's terms, and excludes the guardians of the job always, and the providers that lost a rank on
// the first try.
func TestCompose(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.NewMemory())
	guard, lost, user := sign.Key{1}, sign.Key{2}, sign.Key{3}
	s, _ := w.of(t, 3, func(j *record.Job) {
		j.Lost, j.Spec.Placement.Exclude = []sign.Key{lost}, []sign.Key{user}
		j.Detached = &record.Detached{Guardians: []record.Guardian{{Key: guard}}}
	})
	for choosy, want := range map[bool][]sign.Key{true: {user, guard, lost}, false: {user, guard}} {
		o, env, err := s.compose(2, 500, 0, choosy, 0, orderValidity)
		if err != nil || !slices.Equal(o.Exclude, want) {
			t.Errorf("choosy %v: excluded are %v, %v", choosy, o.Exclude, err)
		}
		terms, err := record.Terms(s.Peek().Spec, nil)
		if err != nil || o.JobTerms != terms || o.Count != 2 || o.Slots != 500 || !o.Funds.IsZero() || o.Nonce == (market.Nonce{}) {
			t.Errorf("order %+v, %v", o, err)
		}
		if got, err := market.DecodeOrder(runtest.Genesis.Domain(), env, time.Now()); err != nil || got.ID != o.ID {
			t.Errorf("the envelope has order %s, %v, want %s", got.ID, err, o.ID)
		}
	}
	if first, _, _ := s.compose(1, 9, 0, false, 0, orderValidity); first.ID == w.orderID(t, s) {
		t.Error("two orders of a job are equal")
	}
	// The order of a cluster has the cluster's terms, that of a replicated job salted ones.
	s.Show(func(j *record.Job) bool {
		j.Cluster, j.Detached = &record.Cluster{Terms: sign.Hash{8}}, nil
		return true
	})
	if o, _, err := s.compose(1, 9, 0, true, 0, orderValidity); err != nil || o.JobTerms != (sign.Hash{8}) {
		t.Errorf("terms %v, %v", o.JobTerms, err)
	}
	s.Show(func(j *record.Job) bool {
		j.Nonce = sign.Hash{4}
		return true
	})
	o, _, err := s.compose(1, 9, 0, true, 0, orderValidity)
	plain, _ := record.Terms(s.Peek().Spec, nil)
	if j := s.Peek(); err != nil || o.Nonce != j.OrderNonce() || o.JobTerms == plain || o.JobTerms == (sign.Hash{8}) {
		t.Errorf("order %+v, %v", o, err)
	}
}

func (w *world) orderID(t *testing.T, s *Orders) market.OrderID {
	t.Helper()
	o, _, err := s.compose(1, 9, 0, false, 0, orderValidity)
	if err != nil {
		t.Fatal(err)
	}
	return o.ID
}

// A guarded job that has begun pays from its escrow, its first order from the peer's money.
func TestComposeFunds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.NewMemory())
	s, _ := w.of(t, 1, func(j *record.Job) {
		j.Detached = &record.Detached{Escrow: &record.Place{Address: sign.Key{9}, Deadline: 1500}}
	})
	if o, _, err := s.compose(1, 9, 0, false, 0, orderValidity); err != nil || !o.Funds.IsZero() {
		t.Errorf("the first order: funds %v, %v", o.Funds, err)
	}
	s.Show(func(j *record.Job) bool {
		j.Started = time.Now()
		return true
	})
	if o, _, err := s.compose(1, 9, 0, false, 0, orderValidity); err != nil || o.Funds != (sign.Key{9}) {
		t.Errorf("a later order: funds %v, %v", o.Funds, err)
	}
}

// Standbys are the best quotes that were not chosen, as many as the job wants. Those that were lost or work for the job
// are not hired, and none for longer than its money and the escrow last.
func TestStandbys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.NewMemory())
	s, _ := w.of(t, 1, func(j *record.Job) {
		j.Spec.Guardians, j.Spec.Standbys, j.Detached = 3, 2, &record.Detached{}
	})
	w.Restore()
	w.Run()
	w.Begin(s.Job)
	order := market.Order{ID: market.OrderID{5}, UnitsPer: 1, Slots: 100, Expires: time.Now().Add(time.Minute)}
	quotes := map[sign.Key]exchange.Quoted{}
	var spares []sign.Key
	for i := range 4 {
		k := runtest.Provider(i).Key()
		spares = append(spares, k)
		if i > 0 { // the first one's quote is gone
			quotes[k] = exchange.Quoted{
				Quote: market.Quote{Provider: k, Price: market.Price(36_000 * i), Addrs: []string{"/ip4/192.0.2.1"}},
				Offer: market.Offer{Addrs: []string{"/ip4/192.0.2.2"}},
			}
		}
	}
	if err := s.prepare(t.Context(), order, spares, quotes); err != nil {
		t.Fatal(err)
	}
	got := s.Peek().Detached.Standbys
	if len(got) != 2 || got[0].Quote.Provider != spares[1] || got[1].Quote.Provider != spares[2] || len(got[0].Addrs) != 2 {
		t.Fatalf("standbys %+v", got)
	}
	if got[0].Budget == 0 || got[1].Budget < got[0].Budget {
		t.Errorf("budgets %d and %d", got[0].Budget, got[1].Budget)
	}
	rec, err := record.Records.Get(t.Context(), w.Store, s.ID)
	if err != nil || len(rec.Detached.Standbys) != 2 {
		t.Errorf("the journal has %+v, %v", rec.Detached, err)
	}
	s.Show(func(j *record.Job) bool {
		j.Lost = []sign.Key{spares[1]}
		return true
	})
	left := s.standbys(order)
	if len(left) != 1 || left[0].Quote.Provider != spares[2] || left[0].Quote.Order != order.ID ||
		left[0].Route != exchange.RouteStandby {
		t.Errorf("left are %+v", left)
	}
	seats := []jobs.Seat{{Rank: 0, Epoch: 2}, {Rank: 1, Epoch: 2}}
	var none *exchange.Unplaced
	if _, err := s.hire(t.Context(), order, nil, seats); !errors.As(err, &none) || !none.Raced {
		t.Errorf("two are hired of one: %v", err)
	}
	if _, err := s.hire(t.Context(), order, nil, make([]jobs.Seat, pay.MaxStandbyLeaves+1)); !errors.As(err, &none) || none.Raced {
		t.Errorf("more than an escrow takes are hired: %v", err)
	}
	if _, err := s.standbySlots(1000); !errors.Is(err, pay.ErrNoPlace) {
		t.Errorf("without an escrow: %v", err)
	}
	escrow := func(deadline market.Slot) uint64 {
		s.Show(func(j *record.Job) bool {
			d := *j.Detached
			d.Escrow = &record.Place{Deadline: deadline}
			j.Detached = &d
			return true
		})
		n, err := s.standbySlots(1000)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := escrow(1020); n != 20 {
		t.Errorf("%d slots until the escrow's deadline, want 20", n)
	}
	if n := escrow(5000); n > 101 || n < 99 {
		t.Errorf("%d slots of the standbys' money, want 100", n)
	}
	if n := escrow(10); n != 1 {
		t.Errorf("%d slots after the deadline, want 1", n)
	}
}

// An order is in the journal before it is published. Nobody quotes, so that the machine gets one failure.
func TestPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.NewMemory())
	s, parts := w.of(t, 1, nil)
	w.Restore()
	w.Run()
	w.Begin(s.Job)
	_, effects, _ := parts.Seen()
	fx, _ := runtest.Has[jobs.OrderGang](effects)
	s.Place(fx)
	<-w.desert.reached
	id := w.desert.orders()[0].ID
	if _, err := record.Orders.Get(t.Context(), w.Store, id.String()); err != nil {
		t.Error("a published order is not in the journal:", err)
	}
	if got := s.Snapshot().Orders; len(got) != 1 || got[0] != id {
		t.Errorf("orders of the job: %v", got)
	}
	s.Cancel(jobs.CancelGang{Gang: fx.Gang})
	st, err := s.Until(t.Context(), func(st jobs.State) bool { return len(st.Gangs) == 0 })
	if err != nil || st.Ranks[0].Doing == jobs.Ordering {
		t.Errorf("rank %+v, %v", st.Ranks[0], err)
	}
	w.Tasks.Wait()
	s.Cancel(jobs.CancelGang{Gang: fx.Gang}) // it is over
	if s.tries != 1 || len(s.gangs) != 0 {
		t.Errorf("%d tries, gangs %v", s.tries, s.gangs)
	}
}

// An order that the journal does not have is not published.
func TestPlaceUnjournalled(t *testing.T) {
	t.Parallel()
	st := store.NewCrashing(store.NewMemory())
	w := newWorld(t, st)
	s, parts := w.of(t, 1, nil)
	w.Restore()
	w.Run()
	w.Begin(s.Job)
	_, effects, _ := parts.Seen()
	fx, _ := runtest.Has[jobs.OrderGang](effects)
	st.CrashAt(st.Count()+1, store.Before)
	s.Place(fx)
	w.Tasks.Wait()
	if got := w.desert.orders(); len(got) != 0 {
		t.Errorf("published are %v", got)
	}
}

// A lease of a gang that was not formed counts if it was paid for.
func TestCountStray(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.NewMemory())
	s, parts := w.of(t, 1, nil)
	w.Restore()
	w.Run()
	w.Begin(s.Job)
	paid, unpaid := w.Lease(s.Job, runtest.Core(0)), w.Lease(s.Job, runtest.Core(1))
	s.Hold(paid)
	s.count([]*leases.Lease{unpaid})
	s.count([]*leases.Lease{paid, unpaid})
	parts.Until(t, func(all []jobs.Effect) bool {
		end, ok := runtest.Has[jobs.EndLease](all)
		return ok && end.Chain == paid.ID
	})
	if st, err := s.State(); err != nil || len(st.Leases) != 1 {
		t.Errorf("the machine has %+v, %v", st.Leases, err)
	}
}

// A quotation orders nothing: its order is journalled and published, and the reason says that nobody quoted.
func TestQuote(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.NewMemory())
	q, err := w.office.Quote(t.Context(), runtest.Voice{}, runtest.Spec(2))
	if err != nil || q.Places || q.Reason == "" || len(q.Quotes) != 0 {
		t.Fatalf("%+v, %v", q, err)
	}
	if _, err := record.Orders.Get(t.Context(), w.Store, q.Order.String()); err != nil {
		t.Error("the order of a quotation is not in the journal:", err)
	}
	for _, o := range w.desert.orders() {
		if o.Count != 2 || o.Ceiling != 0 {
			t.Errorf("order %+v", o)
		}
	}
	if _, err := w.office.Quote(t.Context(), runtest.Voice{}, runtest.Spec(0)); !errors.Is(err, record.ErrRefused) {
		t.Errorf("a job without ranks: %v", err)
	}
	if cost, err := costOf(runtest.Spec(1), 100, 36_000, 1_000_000, 3); err != nil || cost != 3_000_000 {
		t.Errorf("three ranks for an hour at 1 cost %d, %v", cost, err)
	}
	all := record.Quotation{Quotes: []record.QuotedOffer{
		{Provider: sign.Key{1}, Price: 5}, {Provider: sign.Key{4}, Price: 3}, {Provider: sign.Key{3}, Price: 3},
		{Provider: sign.Key{2}, Price: 9, Ranks: 1},
	}, Declined: []record.Declined{{Provider: sign.Key{7}}, {Provider: sign.Key{6}}}}
	sortQuotes(&all)
	var order []string
	for _, q := range all.Quotes {
		order = append(order, q.Provider.String()[:2])
	}
	if all.Quotes[0].Provider != (sign.Key{2}) || all.Quotes[1].Provider != (sign.Key{3}) ||
		all.Quotes[3].Provider != (sign.Key{1}) || all.Declined[0].Provider != (sign.Key{6}) {
		t.Errorf("the order is %s", strings.Join(order, ", "))
	}
}
