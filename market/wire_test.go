package market_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

var (
	provider = sign.NewPrivate([32]byte{1})
	buyer    = sign.NewPrivate([32]byte{2})
	domain   = testGenesis().Domain()
	now      = time.Unix(1_700_000_000, 0).UTC()
)

func testOffer() market.Offer {
	return market.Offer{
		Provider: provider.Key(), Seq: 7, Class: "gpu/h200", Region: "eu-west", Units: 3, Total: 8,
		PerUnit: market.Resources{MilliCPU: 16000, MemoryMiB: 65536, DiskMiB: 100000, VRAMMiB: 143771}, Price: 2_500_000, MinSlots: 150, MaxSlots: 1_000_000,
		Runtimes: []string{"docker", "wasm"}, Payout: sign.Key{3}, NotBefore: now, Expires: now.Add(10 * time.Minute),
		Addrs: []string{"/ip4/192.0.2.1/udp/4001/quic-v1"}, Version: "starling/0.1.0", GenesisHash: testGenesis().Hash(),
		Model: "NVIDIA H200", Capability: 90, Proven: 2, Proof: testProof(),
		Coordinate: testCoordinate(), NoClusters: true, Egress: market.EgressListed,
		Images: market.ImagePolicy{Allow: []string{"ghcr.io/acme/**"}, Deny: []string{"ghcr.io/acme/old/*"}, More: true},
		Ready:  images.NewReady([]images.Prefix{{9, 7: 1}, {3}}, 2),
	}
}

// testProof is the root over three units' records.
func testProof() sign.Hash {
	root, err := market.ProofRoot(testShown(3))
	if err != nil {
		panic(err)
	}
	return root
}

func testShown(n int) []market.Shown {
	var out []market.Shown
	for _, u := range testUnits(n) {
		out = append(out, market.Shown{Unit: u, Record: sign.Sum(u[:])})
	}
	return out
}

func testOrder() market.Order {
	o := market.Order{
		Buyer: buyer.Key(), Nonce: market.Nonce{9, 15: 1}, Class: "gpu/h200", Regions: []market.Region{"eu-west", "eu-north"}, Count: 4, UnitsPer: 2,
		Min: market.Resources{VRAMMiB: 80000}, Runtime: "docker", Slots: 9000, Expires: now.Add(30 * time.Second),
		ReplyKey: market.ReplyKey{31: 8}, MinStake: 5, Draw: 1 << 30,
		Exclude: []sign.Key{{5}, {6}}, JobTerms: sign.Hash{7}, MinCapability: 80, Unproven: true, Egress: market.EgressInternet,
		Funds: sign.Key{4},
	}
	o, err := o.ByAgent(domain, o.Buyer, provider)
	if err != nil {
		panic(err)
	}
	return o
}

func testQuote() market.Quote {
	return market.Quote{
		Order: market.OrderID{8}, Provider: provider.Key(), Price: 2_600_000, Leases: 1, Payout: sign.Key{3}, Expires: now.Add(15 * time.Second),
		Region: "eu-west", OfferSeq: 7, PerUnit: market.Resources{VRAMMiB: 143771}, Addrs: []string{"/ip4/192.0.2.1/udp/4001/quic-v1"}, Version: "starling/0.1.0",
		Class: "gpu/h200", Model: "NVIDIA H200", Capability: 90,
	}
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	offer := testOffer()
	b, err := offer.Encode(domain, provider)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := market.DecodeOffer(domain, b, now); err != nil || !reflect.DeepEqual(got, offer) {
		t.Errorf("%+v, %v", got, err)
	}
	sealed, b, err := market.SealOrder(domain, testOrder(), buyer)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := market.DecodeOrder(domain, b, now); err != nil || !reflect.DeepEqual(got, sealed) || got.ID.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	quote := testQuote()
	b, err = quote.Encode(domain, provider)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := market.DecodeQuote(domain, b, now); err != nil || !reflect.DeepEqual(got, quote) {
		t.Errorf("%+v, %v", got, err)
	}
	other := testOrder()
	other.Nonce[0]++
	again, _, err := market.SealOrder(domain, other, buyer)
	if err != nil || again.ID == sealed.ID {
		t.Error("two orders with one id", err)
	}
	if byOther, _, err := market.SealOrder(domain, testOrder(), provider); err != nil || byOther.ID == sealed.ID {
		t.Error("two buyers with one order id", err)
	}
	sealed.Ceiling = 3_000_000
	if cost, err := sealed.MaxCost(400); err != nil || cost != 4*2*3_000_000 {
		t.Error(cost, err)
	}
}

// Every kind of bad message is refused with the error class that tells a gossip validator what to do with it.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	good, err := testOffer().Encode(domain, provider)
	if err != nil {
		t.Fatal(err)
	}
	decode := func(b []byte, at time.Time) error { _, err := market.DecodeOffer(domain, b, at); return err }
	change := func(i int, bits byte) []byte {
		b := append([]byte(nil), good...)
		b[i] ^= bits
		return b
	}
	smallOrder := append([]byte(nil), good...)
	identity := sign.Key{1}
	copy(smallOrder, identity[:])
	elsewhere := domain
	elsewhere.Network = "test-2"
	foreign, _ := testOffer().Encode(elsewhere, provider)
	garbage, _ := sign.Seal(domain, sign.TagOffer, []byte{0xff, 0xff, 0xff}, provider)
	for name, c := range map[string]struct {
		b    []byte
		at   time.Time
		want error
	}{
		"good":             {good, now, nil},
		"empty":            {nil, now, market.ErrMalformed},
		"cut":              {good[:90], now, market.ErrMalformed},
		"oversized":        {append(append([]byte(nil), good...), make([]byte, market.MaxOfferPayload)...), now, market.ErrMalformed},
		"changed payload":  {change(len(good)-1, 1), now, market.ErrBadSignature},
		"changed key":      {change(3, 1), now, market.ErrBadSignature},
		"changed R":        {change(40, 1), now, market.ErrBadSignature},
		"S not canonical":  {change(95, 0xf0), now, market.ErrBadSignature},
		"small-order key":  {smallOrder, now, market.ErrBadSignature},
		"other network":    {foreign, now, market.ErrBadSignature},
		"not protobuf":     {garbage.Marshal(), now, market.ErrMalformed},
		"expired":          {good, now.Add(10 * time.Minute), market.ErrExpired},
		"from the future":  {good, now.Add(-31 * time.Second), market.ErrNotYet},
		"too far ahead":    {good, now.Add(-25 * time.Hour), market.ErrNotYet},
		"within the skew":  {good, now.Add(-29 * time.Second), nil},
		"last millisecond": {good, now.Add(10*time.Minute - time.Millisecond), nil},
	} {
		if err := decode(c.b, c.at); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	order, _ := testOrder().Encode(domain, buyer)
	if _, err := market.DecodeOffer(domain, order, now); !errors.Is(err, market.ErrBadSignature) {
		t.Errorf("an order as an offer: %v", err)
	}
	offer := testOffer()
	other := testGenesis()
	other.IntervalSlots++
	if err := offer.CheckGenesis(other); !errors.Is(err, market.ErrOtherNetwork) {
		t.Error(err)
	}
	if err := offer.CheckGenesis(testGenesis()); err != nil {
		t.Error(err)
	}
	real, simulated := testGenesis(), testGenesis()
	real.Simulated, simulated.Simulated = false, true
	offer.Simulated, offer.GenesisHash = true, real.Hash()
	if err := offer.CheckGenesis(real); !errors.Is(err, market.ErrSimulated) || !strings.Contains(err.Error(), "NVIDIA H200 (simulated) is on offer") {
		t.Error(err)
	}
	offer.GenesisHash = simulated.Hash()
	if err := offer.CheckGenesis(simulated); err != nil {
		t.Error(err)
	}
	if err := offer.Supersedes(testOffer()); !errors.Is(err, market.ErrReplayed) {
		t.Error(err)
	}
	if q := testQuote(); !errors.Is(q.CheckFor(market.Order{ID: market.OrderID{1}}), market.ErrMalformed) {
		t.Error("a quote for another order passes")
	}
	var refusal *market.Refusal
	if q := testQuote(); !errors.Is(q.CheckFor(market.Order{ID: market.OrderID{8}, Class: "gpu/h100"}), market.ErrMalformed) {
		t.Error("a quote for other units than asked passes")
	}
	if q := testQuote(); q.CheckFor(market.Order{ID: market.OrderID{8}, Class: "gpu"}) != nil || q.CheckOffer(testOffer()) != nil {
		t.Error("a quote for a member of the family is refused")
	}
	for name, change := range map[string]func(*market.Quote){
		"class": func(q *market.Quote) { q.Class = "gpu/h100" }, "model": func(q *market.Quote) { q.Model = "" },
		"capability": func(q *market.Quote) { q.Capability++ }, "simulated": func(q *market.Quote) { q.Simulated = true },
		"provider": func(q *market.Quote) { q.Provider = buyer.Key() },
	} {
		q := testQuote()
		change(&q)
		if !errors.Is(q.CheckOffer(testOffer()), market.ErrMalformed) {
			t.Errorf("a quote with another %s than its offer passes", name)
		}
	}
	if q := testQuote(); !errors.As(q.CheckFor(market.Order{ID: market.OrderID{8}, Class: "gpu/h200", Buyer: provider.Key()}), &refusal) || refusal.Reason != market.ReasonOwn {
		t.Error("a quote of the buyer's own passes")
	}
}

func TestFieldLimits(t *testing.T) {
	t.Parallel()
	many := func(n int) []string { return strings.Split(strings.Repeat("/a ", n-1)+"/a", " ") }
	for name, change := range map[string]func(*market.Offer){
		"class":         func(o *market.Offer) { o.Class = "GPU" },
		"long class":    func(o *market.Offer) { o.Class = market.Class(strings.Repeat("a", 33)) },
		"region":        func(o *market.Offer) { o.Region = "" },
		"no units":      func(o *market.Offer) { o.Total, o.Units = 0, 0 },
		"units":         func(o *market.Offer) { o.Units = 9 },
		"slots":         func(o *market.Offer) { o.MinSlots = 0 },
		"slots order":   func(o *market.Offer) { o.MaxSlots = 10 },
		"slots most":    func(o *market.Offer) { o.MaxSlots = market.MaxLeaseSlots + 1 },
		"runtimes":      func(o *market.Offer) { o.Runtimes = nil },
		"many runtimes": func(o *market.Offer) { o.Runtimes = many(9) },
		"runtime":       func(o *market.Offer) { o.Runtimes = []string{"a b"} },
		"payout":        func(o *market.Offer) { o.Payout = sign.Key{} },
		"expires":       func(o *market.Offer) { o.Expires = o.NotBefore },
		"addr":          func(o *market.Offer) { o.Addrs = []string{"ip4"} },
		"many addrs":    func(o *market.Offer) { o.Addrs = many(9) },
		"version":       func(o *market.Offer) { o.Version = "new\nline" },
		"model":         func(o *market.Offer) { o.Model = "NVIDIA\x1b[2J" },
		"long model":    func(o *market.Offer) { o.Model = strings.Repeat("a", market.MaxModel+1) },
		"capability":    func(o *market.Offer) { o.Capability = market.MaxCapability + 1 },
		"proven":        func(o *market.Offer) { o.Proven = o.Units + 1 },
		"no proof":      func(o *market.Offer) { o.Proof = sign.Hash{} },
		"coordinate":    func(o *market.Offer) { o.Coordinate.Height = 0 },
	} {
		o := testOffer()
		change(&o)
		if _, err := o.Encode(domain, provider); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("offer with bad %s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*market.Order){
		"class":        func(o *market.Order) { o.Class = "" },
		"regions":      func(o *market.Order) { o.Regions = make([]market.Region, 9) },
		"region":       func(o *market.Order) { o.Regions = []market.Region{"EU"} },
		"no count":     func(o *market.Order) { o.Count = 0 },
		"count":        func(o *market.Order) { o.Count = market.MaxCount + 1 },
		"no units":     func(o *market.Order) { o.UnitsPer = 0 },
		"units":        func(o *market.Order) { o.UnitsPer = market.MaxUnitsPerLease + 1 },
		"runtime":      func(o *market.Order) { o.Runtime = "" },
		"slots":        func(o *market.Order) { o.Slots = 0 },
		"expires":      func(o *market.Order) { o.Expires = time.Time{} },
		"capability":   func(o *market.Order) { o.MinCapability = market.MaxCapability + 1 },
		"agent":        func(o *market.Order) { o.Agent = sign.Key{1} },
		"no reply key": func(o *market.Order) { o.ReplyKey = market.ReplyKey{} },
		"no draw":      func(o *market.Order) { o.Draw = 0 },
		"shard":        func(o *market.Order) { o.Shard, o.Draw = market.Shards+1, 1 },
		"shard's draw": func(o *market.Order) { o.Shard, o.Draw = 1, 1<<28 },
		"many exclude": func(o *market.Order) { o.Exclude = make([]sign.Key, market.MaxExclude+1) },
	} {
		o := testOrder()
		change(&o)
		if _, err := o.Encode(domain, buyer); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("order with bad %s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*market.Quote){
		"order":   func(q *market.Quote) { q.Order = market.OrderID{} },
		"leases":  func(q *market.Quote) { q.Leases = 0 },
		"payout":  func(q *market.Quote) { q.Payout = sign.Key{} },
		"expires": func(q *market.Quote) { q.Expires = time.Time{} },
		"region":  func(q *market.Quote) { q.Region = "" },
		"class":   func(q *market.Quote) { q.Class = "" },
		"model":   func(q *market.Quote) { q.Model = "ü" },
		"addrs":   func(q *market.Quote) { q.Addrs = []string{strings.Repeat("/", 257)} },
	} {
		q := testQuote()
		change(&q)
		if _, err := q.Encode(domain, provider); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("quote with bad %s: %v", name, err)
		}
	}
	// The ceiling is not sent.
	o := testOrder()
	o.Ceiling = 5
	sealed, b, err := market.SealOrder(domain, o, buyer)
	if err != nil || sealed.Ceiling != 5 {
		t.Errorf("ceiling %d, %v", sealed.Ceiling, err)
	}
	if got, err := market.DecodeOrder(domain, b, now); err != nil || got.Ceiling != 0 || got.ID != sealed.ID {
		t.Errorf("another peer reads ceiling %d, %v", got.Ceiling, err)
	}
}

// FuzzOffer, FuzzOrder and FuzzQuote sign the fuzzed payload, so that the fuzzer gets past the signature.
func FuzzOffer(f *testing.F) {
	for _, simulated := range []bool{false, true} {
		o := testOffer()
		o.Simulated = simulated
		if simulated {
			o.Proven, o.Proof, o.Coordinate = 0, sign.Hash{}, market.Coordinate{}
		}
		b, _ := o.Encode(domain, provider)
		f.Add(b[sign.EnvelopeOverhead:])
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := sign.Seal(domain, sign.TagOffer, payload, provider)
		if err != nil {
			t.Fatal(err)
		}
		o, err := market.DecodeOffer(domain, e.Marshal(), now)
		if err != nil {
			return
		}
		b, err := o.Encode(domain, provider)
		if err != nil {
			if errors.Is(err, market.ErrMalformed) && len(payload) > market.MaxOfferPayload-64 {
				return
			}
			t.Fatal(err)
		}
		if again, err := market.DecodeOffer(domain, b, now); err != nil || !reflect.DeepEqual(o, again) {
			t.Fatalf("%+v\n%+v\n%v", o, again, err)
		}
	})
}

func FuzzOrder(f *testing.F) {
	for _, class := range []market.Class{"gpu", "gpu/h200"} {
		o := testOrder()
		if o.Class = class; class == "gpu" {
			o.Shard, o.Draw = 7, 1<<20
		}
		b, _ := o.Encode(domain, buyer)
		f.Add(b[sign.EnvelopeOverhead:])
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := sign.Seal(domain, sign.TagOrder, payload, buyer)
		if err != nil {
			t.Fatal(err)
		}
		o, err := market.DecodeOrder(domain, e.Marshal(), now)
		if err != nil {
			return
		}
		sealed, b, err := market.SealOrder(domain, o, buyer)
		if err != nil {
			if errors.Is(err, market.ErrMalformed) && len(payload) > market.MaxOrderPayload-64 {
				return
			}
			t.Fatal(err)
		}
		again, err := market.DecodeOrder(domain, b, now)
		if err != nil || !reflect.DeepEqual(sealed, again) {
			t.Fatalf("%+v\n%+v\n%v", sealed, again, err)
		}
		if again.ID = o.ID; !reflect.DeepEqual(o, again) {
			t.Fatalf("%+v\n%+v", o, again)
		}
	})
}

func FuzzQuote(f *testing.F) {
	for _, simulated := range []bool{false, true} {
		q := testQuote()
		q.Simulated = simulated
		b, _ := q.Encode(domain, provider)
		f.Add(b[sign.EnvelopeOverhead:])
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := sign.Seal(domain, sign.TagQuote, payload, provider)
		if err != nil {
			t.Fatal(err)
		}
		q, err := market.DecodeQuote(domain, e.Marshal(), now)
		if err != nil {
			return
		}
		b, err := q.Encode(domain, provider)
		if err != nil {
			if errors.Is(err, market.ErrMalformed) && len(payload) > market.MaxQuotePayload-64 {
				return
			}
			t.Fatal(err)
		}
		if again, err := market.DecodeQuote(domain, b, now); err != nil || !reflect.DeepEqual(q, again) {
			t.Fatalf("%+v\n%+v\n%v", q, again, err)
		}
	})
}

func FuzzOffers(f *testing.F) {
	b, _ := testOffer().Encode(domain, provider)
	for _, envelopes := range [][][]byte{nil, {b}, {b, b}} {
		list, err := market.MarshalOffers(envelopes)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		envelopes, err := market.UnmarshalOffers(b)
		if err != nil {
			return
		}
		list, err := market.MarshalOffers(envelopes)
		if err != nil {
			if errors.Is(err, market.ErrMalformed) && len(b) > market.MaxOfferList-64 {
				return
			}
			t.Fatal(err)
		}
		if again, err := market.UnmarshalOffers(list); err != nil || !reflect.DeepEqual(envelopes, again) {
			t.Fatalf("%x\n%x\n%v", envelopes, again, err)
		}
	})
}

func TestOffersAreBounded(t *testing.T) {
	t.Parallel()
	if _, err := market.MarshalOffers(make([][]byte, market.MaxOffers+1)); !errors.Is(err, market.ErrMalformed) {
		t.Error(err)
	}
	if _, err := market.MarshalOffers([][]byte{make([]byte, market.MaxOfferList)}); !errors.Is(err, market.ErrMalformed) {
		t.Error(err)
	}
	var m marketpb.OfferList
	m.Offers = make([][]byte, market.MaxOffers+1)
	b, _ := proto.Marshal(&m)
	if _, err := market.UnmarshalOffers(b); !errors.Is(err, market.ErrMalformed) {
		t.Error(err)
	}
	if _, err := market.UnmarshalOffers(make([]byte, market.MaxOfferList+1)); !errors.Is(err, market.ErrMalformed) {
		t.Error(err)
	}
	if _, err := market.UnmarshalOffers([]byte{0xff}); !errors.Is(err, market.ErrMalformed) {
		t.Error(err)
	}
}

// Unknown fields are ignored, so that the messages can grow.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	b, _ := testQuote().Encode(domain, provider)
	payload := append(append([]byte(nil), b[sign.EnvelopeOverhead:]...), 0xfa, 0x3f, 2, 'h', 'i') // field 1023
	e, _ := sign.Seal(domain, sign.TagQuote, payload, provider)
	if got, err := market.DecodeQuote(domain, e.Marshal(), now); err != nil || !reflect.DeepEqual(got, testQuote()) {
		t.Error(err)
	}
	var m marketpb.Quote
	if err := proto.Unmarshal(payload, &m); err != nil || len(m.ProtoReflect().GetUnknown()) == 0 {
		t.Error("the test does not test what it says", err)
	}
}

func TestWireProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := testOffer()
		o.Seq, o.Price = rapid.Uint64().Draw(t, "seq"), market.Price(rapid.Uint64().Draw(t, "price"))
		o.Class = rapid.SampledFrom([]market.Class{"cpu", "gpu", "gpu/h200", "gpu/h100-mig-1g"}).Draw(t, "class")
		o.Model = rapid.StringMatching(`[ -~]{0,64}`).Draw(t, "model")
		o.Capability = market.Capability(rapid.IntRange(0, int(market.MaxCapability)).Draw(t, "capability"))
		o.Simulated = rapid.Bool().Draw(t, "simulated")
		o.Total = rapid.Uint32Range(1, 1<<31).Draw(t, "total")
		o.Units = rapid.Uint32Range(0, o.Total).Draw(t, "units")
		if o.Proven = rapid.Uint32Range(0, o.Units).Draw(t, "proven"); o.Proven == 0 && rapid.Bool().Draw(t, "no proof") {
			o.Proof = sign.Hash{}
		}
		o.Expires = now.Add(time.Duration(rapid.Int64Range(1, 86_400_000).Draw(t, "ms")) * time.Millisecond)
		b, err := o.Encode(domain, provider)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := market.DecodeOffer(domain, b, now); err != nil || !reflect.DeepEqual(got, o) {
			t.Fatalf("liveness: %+v, %v", got, err)
		}
		bit := rapid.IntRange(0, 8*len(b)-1).Draw(t, "bit")
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := market.DecodeOffer(domain, b, now); err == nil {
			t.Fatal("safety: a changed offer passes")
		}
	})
}

func TestFamilies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		asked, offered market.Class
		accepts        bool
	}{
		{"gpu", "gpu/h100", true}, {"gpu", "gpu", true}, {"gpu/h100", "gpu/h100", true}, {"cpu", "cpu", true},
		{"gpu/h100", "gpu/h100/mig", false}, {"gpu/h100", "gpu", false}, {"gpu", "gpu-x", false}, {"gpu", "gpux/h100", false},
		{"cpu", "gpu/h100", false}, {"gpu/h100", "gpu/h200", false}, {"", "gpu", false},
	} {
		if c.asked.Accepts(c.offered) != c.accepts {
			t.Errorf("%s for an order of %s: accepted is not %v", c.offered, c.asked, c.accepts)
		}
	}
	for in, want := range map[string]string{
		"NVIDIA H200": "NVIDIA H200", "": "", " a\tb\n ": "ab", "Intel® Xeon": "Intel Xeon", strings.Repeat("x", 70): strings.Repeat("x", 64),
	} {
		if got := market.CleanModel(in); got != want {
			t.Errorf("%q becomes %q", in, got)
		}
	}
	if market.Capability(0).String() != "unknown" || market.Capability(89).String() != "8.9" || market.Capability(120).String() != "12.0" {
		t.Error("capabilities are written wrong")
	}
}

func BenchmarkDecodeOffer(b *testing.B) {
	raw, _ := testOffer().Encode(domain, provider)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := market.DecodeOffer(domain, raw, now); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAttackOthersConsent: an order names an agent, whose account is to back it, only by the agent's own word, for this buyer and this order.
func TestAttackOthersConsent(t *testing.T) {
	t.Parallel()
	thief := sign.NewPrivate([32]byte{66})
	for name, change := range map[string]func(*market.Order){
		"as consented":     func(*market.Order) {},
		"no consent":       func(o *market.Order) { o.Consent = sign.Signature{} },
		"another agent":    func(o *market.Order) { o.Agent = buyer.Key() },
		"another nonce":    func(o *market.Order) { o.Nonce[3] ^= 1 },
		"a bent signature": func(o *market.Order) { o.Consent[5] ^= 1 },
	} {
		o := testOrder()
		change(&o)
		b, err := o.Encode(domain, buyer)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := market.DecodeOrder(domain, b, now); (err == nil) != (name == "as consented") || err != nil && !errors.Is(err, market.ErrBadSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b, err := testOrder().Encode(domain, thief) // the consent is for another buyer
	if err != nil {
		t.Fatal(err)
	}
	if _, err := market.DecodeOrder(domain, b, now); !errors.Is(err, market.ErrBadSignature) {
		t.Errorf("another buyer: %v", err)
	}
}

// TestOfferNamesFewImages: an offer names at most images.MaxReady images, each once and in order. What it names takes no
// more room than images.Size says, and an order's image is never sent.
func TestOfferNamesFewImages(t *testing.T) {
	t.Parallel()
	many := market.ReadyImages{}
	for n := range images.MaxReady + 1 {
		many = append(many, market.ImagePrefix{byte(n + 1)})
	}
	for name, ready := range map[string]market.ReadyImages{
		"too many": many, "twice": {{1}, {1}}, "descending": {{2}, {1}}, "none": {{}},
	} {
		o := testOffer()
		o.Ready = ready
		if b, err := o.Encode(domain, provider); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	for n := range images.MaxReady + 1 {
		plain, with := testOffer(), testOffer()
		plain.Ready, with.Ready = nil, many[:n]
		a, err := plain.Encode(domain, provider)
		if err != nil {
			t.Fatal(err)
		}
		b, err := with.Encode(domain, provider)
		if err != nil || len(b)-len(a) > images.Size(n) {
			t.Errorf("%d images take %d bytes, want at most %d: %v", n, len(b)-len(a), images.Size(n), err)
		}
	}
	plain, with := testOrder(), testOrder()
	with.Image = market.PrefixOf("alpine@sha256:" + strings.Repeat("0f", 32))
	a, err := plain.Encode(domain, buyer)
	if err != nil {
		t.Fatal(err)
	}
	sealed, b, err := market.SealOrder(domain, with, buyer)
	if err != nil || !reflect.DeepEqual(a, b) || sealed.Image != with.Image || with.Image == (market.ImagePrefix{}) {
		t.Errorf("an order with image %s is another: %v", sealed.Image, err)
	}
}
