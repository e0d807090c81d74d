package exchange

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/reputation"
)

var genesis = market.Genesis{Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10}

// world is a buyer's exchange on host 0 and a seller on each other host.
type world struct {
	*p2ptest.Net
	t testing.TB
	*Exchange
	sellers []*seller // by host; nil for host 0
	steps   steps

	mu        sync.Mutex
	published []market.Order
	// publishing runs while an order is being published. It is optional.
	publishing func()
	heard      int // neighbours in the topic
	size       int // of the class, with this peer
	inDHT      []market.Offer
	lookUps    int
	blocked    map[sign.Key]string
	scores     map[sign.Key]reputation.Score
}

// steps is a Trace that a test reads.
type steps struct {
	mu  sync.Mutex
	all []trace.Step
}

func (s *steps) Add(more ...trace.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, more...)
}

// of returns the details of the steps of a kind about a provider, or about all for the zero key.
func (s *steps) of(kind trace.Kind, p sign.Key) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, step := range s.all {
		if step.Kind == kind && (p.IsZero() || step.Provider == p.String()) {
			out = append(out, step.Detail)
		}
	}
	return out
}

// seller is a provider that answers as the test says.
type seller struct {
	key   sign.Private
	offer market.Offer
	// answer changes a quote before it is signed; an error is the answer instead. It is optional.
	answer func(q *market.Quote) error
	delay  time.Duration
}

func newWorld(t testing.TB, n int, change ...func(*Config)) *world {
	t.Helper()
	w := &world{Net: p2ptest.NewNet(t, n, 20*time.Millisecond), t: t, sellers: make([]*seller, n), heard: 1, size: n,
		blocked: map[sign.Key]string{}, scores: map[sign.Key]reputation.Score{}}
	cfg := Config{
		Host: w.Hosts[0], Genesis: genesis, Self: keyOf(t, 0).Key(), Secret: [32]byte{7}, Network: w, Ratings: w,
		Blocked: w.block, Weights: match.DefaultWeights(genesis), Window: 2 * time.Second, Log: p2ptest.Quiet(),
	}
	for _, f := range change {
		f(&cfg)
	}
	w.Exchange = New(cfg)
	for i := 1; i < n; i++ {
		w.sellers[i] = w.sell(i)
	}
	return w
}

func keyOf(t testing.TB, i int) sign.Private {
	raw, err := p2ptest.Key(i).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return sign.NewPrivate([32]byte(raw[:32]))
}

// sell opens the protocols of a provider on host i.
func (w *world) sell(i int) *seller {
	k := keyOf(w.t, i)
	now := time.Now()
	s := &seller{key: k, offer: market.Offer{
		Provider: k.Key(), Seq: 1, Class: "cpu", Region: "eu", Units: 4, Total: 4, Price: market.Price(100 + i),
		PerUnit:  market.Resources{MilliCPU: 1000, MemoryMiB: 1024, DiskMiB: 1024},
		MinSlots: 1, MaxSlots: 1 << 20, Runtimes: []string{"wasm"}, Payout: sign.Key{1}, NotBefore: now, Expires: now.Add(time.Hour),
		GenesisHash: genesis.Hash(), Version: "test",
	}}
	for _, a := range w.Addr(i).Addrs {
		s.offer.Addrs = append(s.offer.Addrs, a.String())
	}
	ask := protocol.Ask.Handle(w.Hosts[i], w.tag, s.handleAsk(genesis.Domain()), stream.Limits{Logger: p2ptest.Quiet()})
	exec := protocol.Exec.Handle(w.Hosts[i], w.tag,
		func(context.Context, peer.ID, *nodepb.ExecRequest) (*nodepb.ExecReply, error) {
			return nil, stream.Refuse("lease", "no such lease here")
		}, stream.Limits{Logger: p2ptest.Quiet()})
	w.t.Cleanup(ask.Close)
	w.t.Cleanup(exec.Close)
	return s
}

type asking = func(context.Context, peer.ID, *marketpb.AskRequest) (*marketpb.AskReply, error)

func (s *seller) handleAsk(d sign.Domain) asking {
	return func(ctx context.Context, _ peer.ID, req *marketpb.AskRequest) (*marketpb.AskReply, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(s.delay):
		}
		o, err := market.DecodeOrder(d, req.Order, time.Now())
		if err != nil {
			return nil, &stream.Malformed{Reason: err.Error()}
		}
		quote, offer, err := s.quote(d, o)
		return &marketpb.AskReply{Quote: quote, Offer: offer}, err
	}
}

// quote signs the seller's quote for an order and its offer.
func (s *seller) quote(d sign.Domain, o market.Order) (quote, offer []byte, err error) {
	q := market.Quote{
		Order: o.ID, Provider: s.offer.Provider, Price: s.offer.Price, Leases: s.offer.Units / o.UnitsPer,
		Payout: s.offer.Payout, Expires: time.Now().Add(time.Minute), Region: s.offer.Region, OfferSeq: s.offer.Seq,
		PerUnit: s.offer.PerUnit, Addrs: s.offer.Addrs, Version: "test", Class: s.offer.Class,
	}
	if s.answer != nil {
		if err := s.answer(&q); err != nil {
			return nil, nil, err
		}
	}
	if quote, err = q.Encode(d, s.key); err == nil {
		offer, err = s.offer.Encode(d, s.key)
	}
	return quote, offer, err
}

// box seals a seller's quote to the buyer of an order, as it comes back over gossip.
func (w *world) box(i int, o market.Order) []byte {
	w.t.Helper()
	quote, offer, err := w.sellers[i].quote(genesis.Domain(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	plain, err := proto.Marshal(&marketpb.Quoted{Quote: quote, Offer: offer})
	if err != nil {
		w.t.Fatal(err)
	}
	box, err := sealed.SealReply(o.ReplyKey, protocol.QuoteBox(w.tag, o.ID), plain)
	if err != nil {
		w.t.Fatal(err)
	}
	return box
}

// know enters the offers of sellers into the buyer's book.
func (w *world) know(sellers ...int) {
	for _, i := range sellers {
		w.Book.Add(w.sellers[i].offer)
	}
}

// delay delays the answers of sellers.
func (w *world) delay(by time.Duration, sellers ...int) {
	for _, i := range sellers {
		w.sellers[i].delay = by
	}
}

// order seals an order for n leases.
func (w *world) order(n uint32) (market.Order, []byte) {
	w.t.Helper()
	nonce := market.Nonce{byte(len(w.published)), 1}
	o, envelope, err := market.SealOrder(genesis.Domain(), market.Order{
		Nonce: nonce, Class: "cpu", Count: n, UnitsPer: 1, Runtime: "wasm", Slots: 100, Ceiling: 1000,
		Expires: time.Now().Add(time.Minute), ReplyKey: w.ReplyKey(nonce), Draw: match.DrawAll, JobTerms: sign.Hash{1},
	}, keyOf(w.t, 0))
	if err != nil {
		w.t.Fatal(err)
	}
	return o, envelope
}

// buy collects quotes for an order of n leases and returns the prices by provider.
func (w *world) buy(n uint32, ask Ask) (map[sign.Key]market.Price, []match.Refusal) {
	o, envelope := w.order(n)
	got := w.Collect(w.t.Context(), &w.steps, o, envelope, ask)
	prices := map[sign.Key]market.Price{}
	for _, q := range got.Quotes {
		prices[q.Quote.Provider] = q.Quote.Price
	}
	return prices, got.Declined
}

func (w *world) Publish(_ context.Context, o market.Order, _ []byte) (int, error) {
	if w.publishing != nil {
		w.publishing()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published = append(w.published, o)
	return w.heard, nil
}

func (w *world) Find(context.Context, market.Class, []market.Region, int) ([]market.Offer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookUps++
	return w.inDHT, nil
}

func (w *world) Size(market.Class) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

func (w *world) Shard(market.Class) uint32 { return 3 }

func (w *world) Scores(_ reputation.Role, peers ...sign.Key) []reputation.Score {
	out := make([]reputation.Score, len(peers))
	for i, p := range peers {
		out[i] = w.scores[p]
	}
	return out
}

func (w *world) block(p sign.Key) (string, bool) {
	why, no := w.blocked[p]
	return why, no
}

var (
	_ Network = (*world)(nil)
	_ Ratings = (*world)(nil)
)
