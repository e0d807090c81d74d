package gangs

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

var genesis = market.Genesis{Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10, Free: true}

// world is a buyer on host 0 and a seller on each other host. It is the buyer's market, money and clock.
type world struct {
	*p2ptest.Net
	t       *testing.T
	former  *Former
	sellers []*seller // by host; nil for host 0
	trace   *trace.Trace
	request Request

	mu      sync.Mutex
	quotes  []exchange.Quoted   // further ones, for an order that recruits
	limit   map[sign.Key]string // reasons why no more may be committed to providers
	funding error
	blind   error // of the clock
	shares  int   // of limits, not given back
	taking  int   // orders of which leases are taken
	forgone map[market.LeaseID]bool
}

// seller is a provider whose answers a test changes.
type seller struct {
	key   sign.Private
	quote exchange.Quoted
	// answer is optional. It changes an answer before it is sent; an error is the answer instead.
	answer func(req *marketpb.LeaseRequest, reply *marketpb.LeaseReply) error

	mu    sync.Mutex
	steps []string
}

func keyOf(t *testing.T, i int) sign.Private {
	raw, err := p2ptest.Key(i).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return sign.NewPrivate([32]byte(raw[:32]))
}

// newWorld makes an order for so many ranks, at the first sellers.
func newWorld(t *testing.T, sellers int, ranks uint32) *world {
	t.Helper()
	w := &world{
		Net: p2ptest.NewNet(t, sellers+1, 20*time.Millisecond), t: t, sellers: make([]*seller, sellers+1),
		trace: trace.New(nil, "job"), limit: map[sign.Key]string{},
		forgone: map[market.LeaseID]bool{},
	}
	buyer := keyOf(t, 0)
	set, err := market.NewKeySet(1, buyer.Key())
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	book := leases.New(leases.Config{
		Host: w.Hosts[0], Genesis: genesis, Store: store.NewMemory(), Clock: w, Tasks: &tasks, Log: p2ptest.Quiet(),
	})
	w.former = New(Config{
		Host: w.Hosts[0], Genesis: genesis, Clock: w, Market: w, Leases: book, Money: w, Tasks: &tasks,
		Log: p2ptest.Quiet(),
	})
	t.Cleanup(tasks.Wait)
	o, envelope, err := market.SealOrder(genesis.Domain(), market.Order{
		Nonce: market.Nonce{1}, Class: "cpu", Count: ranks, UnitsPer: 1, Runtime: "wasm", Slots: 100, Ceiling: 1000,
		Expires: time.Now().Add(time.Minute), ReplyKey: market.ReplyKey{1}, Draw: match.DrawAll, JobTerms: sign.Hash{1},
	}, buyer)
	if err != nil {
		t.Fatal(err)
	}
	w.request = Request{
		Job: "job", Order: o, Envelope: envelope, Quotes: map[sign.Key]exchange.Quoted{}, Epochs: map[uint32]uint32{},
		As: principal{buyer}, Keys: set, Limited: true, Trace: w.trace,
	}
	for i := 1; i <= sellers; i++ {
		s := w.sell(i)
		w.sellers[i] = s
		w.request.Quotes[s.key.Key()] = s.quote
	}
	for rank := range ranks {
		w.request.Epochs[rank] = 7 + rank
	}
	return w
}

// sell opens the protocol of a provider on host i.
func (w *world) sell(i int) *seller {
	s := &seller{key: keyOf(w.t, i)}
	q := market.Quote{
		Order: w.request.Order.ID, Provider: s.key.Key(), Price: market.Price(100 + i), Leases: 1, Payout: sign.Key{1},
		Class: "cpu", PerUnit: market.Resources{MilliCPU: 1000, MemoryMiB: 1024, DiskMiB: 1024},
	}
	for _, a := range w.Addr(i).Addrs {
		q.Addrs = append(q.Addrs, a.String())
	}
	s.quote = exchange.Quoted{Quote: q, Route: exchange.RouteDirect}
	server := protocol.Lease.Handle(w.Hosts[i], genesis.Tag(), s.handle, stream.Limits{Logger: p2ptest.Quiet()})
	w.t.Cleanup(server.Close)
	return s
}

func (s *seller) handle(_ context.Context, _ peer.ID, req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	reply, err := s.reply(req)
	if err == nil && s.answer != nil { // not under the mutex: it may sleep in the test's bubble
		err = s.answer(req, reply)
	}
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// reply is the honest answer.
func (s *seller) reply(req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := &marketpb.LeaseReply{}
	switch step := req.Step.(type) {
	case *marketpb.LeaseRequest_Reserve:
		s.steps = append(s.steps, "reserve")
		unit := sign.Sum(step.Reserve.Hold)
		reply.Step = &marketpb.LeaseReply_Held{Held: &marketpb.Held{
			Hold: step.Reserve.Hold, Units: [][]byte{unit[:]}, Expires: time.Now().Add(30 * time.Second).UnixMilli(),
		}}
	case *marketpb.LeaseRequest_Sign:
		s.steps = append(s.steps, "sign")
		core, err := market.UnmarshalLeaseCore(step.Sign.Core)
		if err != nil {
			return nil, &stream.Malformed{Reason: err.Error()}
		}
		sig, err := core.Sign(genesis.Domain(), s.key)
		if err != nil {
			return nil, err
		}
		reply.Step = &marketpb.LeaseReply_Signed{Signed: &marketpb.Signed{Hold: step.Sign.Hold, Signature: sig[:]}}
	case *marketpb.LeaseRequest_Activate:
		s.steps = append(s.steps, "activate")
		reply.Step = &marketpb.LeaseReply_Activated{Activated: &marketpb.Activated{Lease: step.Activate.Lease}}
	case *marketpb.LeaseRequest_Release:
		s.steps = append(s.steps, "release")
		reply.Step = &marketpb.LeaseReply_Released{Released: &marketpb.Released{}}
	}
	return reply, nil
}

// got returns the steps that the seller was asked for.
func (s *seller) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.steps)
}

// form forms the gang, with one rank at each of the first sellers, and the others as spares.
func (w *world) form(ctx context.Context) (*Gang, error) {
	var chosen []gang.Member
	var spares []sign.Key
	for i, s := range w.sellers[1:] {
		if uint32(i) < w.request.Order.Count {
			chosen = append(chosen, gang.Member{Rank: uint32(i), Provider: s.key.Key()})
		} else {
			spares = append(spares, s.key.Key())
		}
	}
	return w.former.Form(ctx, w.request, chosen, spares)
}

// settled checks that nothing is held for the order once all calls have ended.
func (w *world) settled(g *Gang) {
	w.t.Helper()
	g.wg.Wait()
	time.Sleep(time.Millisecond) // the bubble's: the task that gives the order back runs
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shares != 0 || w.taking != 0 {
		w.t.Errorf("%d shares of limits and %d orders are not given back", w.shares, w.taking)
	}
}

// principal is the buyer itself.
type principal struct{ key sign.Private }

func (p principal) Key() sign.Signer                       { return p.key }
func (p principal) Epoch() uint64                          { return 0 }
func (p principal) Alone() bool                            { return true }
func (p principal) Changed(context.Context, *leases.Lease) {}

func (p principal) Voucher(context.Context, *leases.Lease, verify.Voucher) (verify.SignedVoucher, error) {
	return verify.SignedVoucher{}, leases.ErrUnpayable
}

func (w *world) Now(time.Time) (market.Slot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return 100, w.blind
}

func (w *world) Collect(
	context.Context, exchange.Trace, market.Order, []byte, exchange.Ask,
) exchange.Collected {
	w.mu.Lock()
	defer w.mu.Unlock()
	return exchange.Collected{Quotes: slices.Clone(w.quotes)}
}

func (w *world) Explain(
	context.Context, market.Order, *match.Unschedulable, map[sign.Key]exchange.Quoted, []match.Refusal,
) string {
	return "the market is empty"
}

func (w *world) CheckUnits(context.Context, market.Order, exchange.Quoted, []market.UnitID) error {
	return nil
}
func (w *world) ProvenRate(sign.Key, []market.UnitID) uint64 { return 0 }

func (w *world) Using(string, market.OrderID) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taking++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.taking--
	}
}

func (w *world) Commit(_ market.HoldID, p sign.Key, _ market.Amount) (func(), string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if over := w.limit[p]; over != "" {
		return func() {}, over
	}
	w.shares++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.shares--
	}, ""
}

func (w *world) Fund(context.Context, string, ...*leases.Lease) error { return w.funding }

func (w *world) Prepay(_ context.Context, l *leases.Lease) (*marketpb.Activate, error) {
	return &marketpb.Activate{Lease: l.ID[:]}, nil
}

func (w *world) Forgo(_ context.Context, l *leases.Lease, _ string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgone[l.ID] = true // a release may come twice
}
