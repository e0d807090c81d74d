package entry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/entry/entrypb"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

var genesis = market.Genesis{
	Network: p2ptest.Network, Chain: sign.Sum([]byte("chain")), Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10, Simulated: true,
}

func keyOf(i int) sign.Private {
	seed, err := p2p.SeedOf(p2ptest.Key(i))
	if err != nil {
		panic(err)
	}
	return sign.NewPrivate(seed)
}

func offer(provider sign.Private, seq uint64, change func(*market.Offer)) []byte {
	o := market.Offer{
		Seq: seq, Class: "cpu", Region: "local", Units: 1, Total: 2, PerUnit: market.Resources{MilliCPU: 1000, MemoryMiB: 64, DiskMiB: 16},
		Price: 1000, MinSlots: 1, MaxSlots: 1000, Runtimes: []string{"wasm"}, Payout: provider.Key(),
		NotBefore: time.Now().Add(-time.Minute), Expires: time.Now().Add(time.Minute), Addrs: []string{"/ip4/10.0.0.1/tcp/1"}, GenesisHash: genesis.Hash(),
	}
	if change != nil {
		change(&o)
	}
	b, err := o.Encode(genesis.Domain(), provider)
	if err != nil {
		panic(err)
	}
	return b
}

func order(buyer sign.Private, nonce byte) []byte {
	b, err := market.Order{
		Nonce: market.Nonce{nonce}, Class: "cpu", Count: 1, UnitsPer: 1, Runtime: "wasm", Slots: 100, ReplyKey: market.ReplyKey{1}, Draw: 1,
		Expires: time.Now().Add(time.Minute),
	}.Encode(genesis.Domain(), buyer)
	if err != nil {
		panic(err)
	}
	return b
}

// world is an entry, a client and counts of what the entry was made to do.
type world struct {
	client                 *p2p.Host
	entry                  peer.ID
	looked, published, rpc atomic.Int64
	publisher              atomic.Pointer[peer.ID]
}

func (w *world) FindSigned(context.Context, market.Class, []market.Region, int) ([][]byte, error) {
	w.looked.Add(1)
	return [][]byte{offer(keyOf(7), 1, nil), offer(keyOf(8), 1, nil)}, nil
}

func (w *world) PublishFor(_ context.Context, client peer.ID, _ market.Order, _ []byte) (int, error) {
	w.published.Add(1)
	w.publisher.Store(&client)
	return 5, nil
}

func (*world) Peers() int { return 7 }

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	hosts := p2ptest.Loopback(t, 2)
	p2ptest.ConnectAll(t, hosts...)
	w := &world{client: hosts[0], entry: hosts[1].ID()}
	cfg := Config{
		Genesis: genesis, Log: p2ptest.Quiet(), Market: w,
		Slot: func() (market.Slot, bool) { return 77, true },
		Others: func() []peer.AddrInfo {
			return []peer.AddrInfo{hosts[0].AddrInfo(), hosts[1].AddrInfo()}
		},
		RPC: func(_ context.Context, call []byte) ([]byte, error) {
			w.rpc.Add(1)
			if bytes.HasPrefix(call, []byte("large")) {
				return make([]byte, MaxAnswer+1), nil
			}
			return append([]byte("answer to "), call...), nil
		},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := Serve(hosts[1], cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return w
}

func TestServe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	h, err := Ask(t.Context(), w.client, w.entry)
	if err != nil {
		t.Fatal(err)
	}
	if h.Genesis != genesis || h.Slot != 77 || !h.ChainUp || !h.RPC || len(h.Others) != 1 || h.Others[0].ID != w.entry || len(h.Others[0].Addrs) == 0 {
		t.Errorf("hello %+v", h)
	}
	f, err := Find(t.Context(), w.client, genesis, w.entry, "cpu", []market.Region{"local"}, 10)
	if err != nil || len(f.Offers) != 2 || f.Bad != 0 {
		t.Errorf("found %+v, %v", f, err)
	}
	if f, err := Find(t.Context(), w.client, genesis, w.entry, "cpu", []market.Region{"local"}, 1); err != nil || len(f.Offers) != 1 {
		t.Errorf("found %d offers, want 1 (%v)", len(f.Offers), err)
	}
	if w.looked.Load() != 1 {
		t.Errorf("the same was looked up %d times within a second", w.looked.Load())
	}
	if n, err := Publish(t.Context(), w.client, genesis.Tag(), w.entry, order(keyOf(0), 1)); n != 5 || err != nil || *w.publisher.Load() != w.client.ID() {
		t.Errorf("published: %d, %v", n, err)
	}
	if b, err := RPC(t.Context(), w.client, genesis.Tag(), w.entry, []byte("this")); string(b) != "answer to this" || err != nil {
		t.Errorf("answer %q, %v", b, err)
	}
}

// What a client asks that it may not, or not so often, is refused with the reason and costs the entry nothing.
func TestHostileClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ctx, tag := t.Context(), genesis.Tag()
	expired := func() []byte {
		b, err := market.Order{
			Class: "cpu", Count: 1, UnitsPer: 1, Runtime: "wasm", Slots: 100, ReplyKey: market.ReplyKey{1}, Draw: 1, Expires: time.Now().Add(-time.Second),
		}.Encode(genesis.Domain(), keyOf(0))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, env := range map[string][]byte{
		"another buyer's": order(keyOf(5), 1), "noise": []byte("noise"), "nothing": nil, "expired": expired(), "too large": make([]byte, maxOrder+100),
	} {
		_, err := Publish(ctx, w.client, tag, w.entry, env)
		var no *stream.Refused
		var bad *stream.Malformed
		if !errors.As(err, &no) && !errors.As(err, &bad) && !errors.Is(err, stream.ErrTooLarge) {
			t.Errorf("an order, %s: %v", name, err)
		}
	}
	if w.published.Load() != 0 {
		t.Error("an order was published that should not be")
	}
	for name, req := range map[string]*entrypb.FindRequest{
		"no class": {}, "a bad class": {Class: "C P U"}, "bad regions": {Class: "cpu", Regions: []string{"!"}},
		"many regions": {Class: "cpu", Regions: make([]string, market.MaxRegions+1)},
	} {
		if _, _, _, err := checkFind(req); err == nil {
			t.Errorf("looking for %s is let through", name)
		}
		var bad *stream.Malformed
		if _, err := find.Call(ctx, w.client, tag, w.entry, req); !errors.As(err, &bad) {
			t.Errorf("looking for %s: %v", name, err)
		}
	}
	if _, err := RPC(ctx, w.client, tag, w.entry, make([]byte, MaxCall+100)); !errors.Is(err, stream.ErrTooLarge) {
		t.Errorf("a large call: %v", err)
	}
	var no *stream.Refused
	if _, err := RPC(ctx, w.client, tag, w.entry, []byte("large")); !errors.As(err, &no) {
		t.Errorf("a large answer: %v", err)
	}
	if w.looked.Load() != 0 {
		t.Error("the DHT was asked for nonsense")
	}
}

// A client that asks without end gets its share and no more, and leaves the others theirs.
func TestFlood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ctx, tag := t.Context(), genesis.Tag()
	began := time.Now()
	count := func(ask func(i int) error) (n int) {
		for i := range 400 {
			err := ask(i)
			var no *stream.Refused
			if err == nil {
				n++
			} else if !errors.As(err, &no) || no.Code != stream.CodeBusy {
				t.Errorf("a flood is answered with %v", err)
			}
		}
		return n
	}
	// What the buckets gained meanwhile is allowed, too.
	most := func(perSecond, burst float64) int { return int(burst + perSecond*(time.Since(began).Seconds()+1)) }
	if n := count(func(int) error { _, err := Ask(ctx, w.client, w.entry); return err }); n < helloBurst || n > most(hellosPerClient, helloBurst) {
		t.Errorf("%d hellos of a flood were answered", n)
	}
	if n := count(func(i int) error {
		_, err := Publish(ctx, w.client, tag, w.entry, order(keyOf(0), byte(i)))
		return err
	}); n < orderBurst || n > most(ordersPerClient, orderBurst) {
		t.Errorf("%d orders of a flood were published", n)
	}
	if n := count(func(int) error { _, err := RPC(ctx, w.client, tag, w.entry, []byte("x")); return err }); n < CallBurst || n > most(CallsPerClient, CallBurst) {
		t.Errorf("%d calls of a flood were passed on", n)
	}
	if n := count(func(i int) error {
		_, err := Find(ctx, w.client, genesis, w.entry, market.Class(fmt.Sprintf("c%d", i)), nil, 1)
		return err
	}); n < findBurst || n > most(findsPerClient, findBurst) {
		t.Errorf("%d look-ups of a flood were made", n)
	}
	// One that asks with many keys meets the limit for all.
	s := newShare(2, 10, 5)
	srv := &Server{h: w.client}
	let := 0
	for i := range 200 {
		id, err := p2p.PeerIDFromKey(keyOf(100 + i).Key())
		if err != nil {
			t.Fatal(err)
		}
		if srv.admit(s, id) == nil {
			let++
		}
	}
	if let > 20 {
		t.Errorf("%d requests of many keys were let through, the limit for all is 5 a second and 10 at once", let)
	}
}

// Answers of an entry that lies, breaks the rules or babbles are refused or leave nothing behind.
func TestHostileEntry(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good := offer(keyOf(1), 1, nil)
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	for name, b := range map[string][]byte{
		"changed": flipped, "noise": []byte("noise"), "empty": nil,
		"of another genesis": offer(keyOf(1), 1, func(o *market.Offer) { o.GenesisHash[0] ^= 1 }),
		"of another class":   offer(keyOf(1), 1, func(o *market.Offer) { o.Class = "gpu" }),
		"expired": offer(keyOf(1), 1, func(o *market.Offer) {
			o.NotBefore, o.Expires = now.Add(-time.Hour), now.Add(-time.Minute)
		}),
	} {
		f, err := decodeFound(&entrypb.FindReply{Offers: [][]byte{b, good}}, genesis, "cpu", now)
		if err != nil || f.Bad != 1 || len(f.Offers) != 1 || f.Offers[0].Provider != keyOf(1).Key() {
			t.Errorf("an offer %s: %+v, %v", name, f, err)
		}
	}
	if _, err := decodeFound(&entrypb.FindReply{Offers: make([][]byte, MaxOffers+1)}, genesis, "cpu", now); !errors.Is(err, ErrBad) {
		t.Errorf("too many offers: %v", err)
	}
	for name, m := range map[string]*entrypb.HelloReply{
		"no genesis": {}, "noise": {Genesis: []byte("noise")}, "a large genesis": {Genesis: bytes.Repeat([]byte(" "), maxGenesis+1)},
		"too many others": {Genesis: genesisJSON(t), Others: make([]*entrypb.Entry, MaxOthers+1)},
	} {
		if _, err := decodeHello(m); !errors.Is(err, ErrBad) {
			t.Errorf("hello with %s: %v", name, err)
		}
	}
	key := keyOf(2).Key()
	h, err := decodeHello(&entrypb.HelloReply{Genesis: genesisJSON(t), Others: []*entrypb.Entry{
		nil, {}, {Key: make([]byte, 32), Addrs: []string{"/ip4/1.2.3.4/tcp/1"}}, {Key: key[:], Addrs: []string{"noise"}},
		{Key: key[:], Addrs: []string{"/p2p/12D3KooWGUxwk7hsXYs41Ch4tb6yTamW7sSDtQCJnSs65FSn9b53/p2p-circuit"}},
		{Key: key[:], Addrs: append([]string{"/dns4/" + strings.Repeat("x", 300) + "/tcp/1"}, manyAddrs(10)...)},
	}})
	if err != nil || len(h.Others) != 1 || len(h.Others[0].Addrs) != maxOtherAddrs {
		t.Errorf("other entries: %+v, %v", h.Others, err)
	}
}

func manyAddrs(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("/ip4/1.2.3.4/tcp/%d", i+1))
	}
	return out
}

func genesisJSON(t testing.TB) []byte {
	t.Helper()
	b, err := json.Marshal(genesis)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzHello(f *testing.F) {
	key := keyOf(2).Key()
	for _, m := range []*entrypb.HelloReply{
		{}, {Genesis: genesisJSON(f), Slot: 7, ChainUp: true, Rpc: true},
		{Genesis: genesisJSON(f), Others: []*entrypb.Entry{{Key: key[:], Addrs: manyAddrs(2)}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m entrypb.HelloReply
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		h, err := decodeHello(&m)
		if err != nil {
			return
		}
		again := &entrypb.HelloReply{Genesis: m.Genesis, Slot: uint64(h.Slot), ChainUp: h.ChainUp, Rpc: h.RPC}
		for _, o := range h.Others {
			e, ok := encodeEntry(o)
			if !ok {
				t.Fatalf("entry %v cannot be written", o)
			}
			again.Others = append(again.Others, e)
		}
		h2, err := decodeHello(again)
		if err != nil || fmt.Sprint(h2) != fmt.Sprint(h) {
			t.Fatalf("%+v is read again as %+v (%v)", h, h2, err)
		}
	})
}

func FuzzFind(f *testing.F) {
	f.Add("cpu", "local", uint32(5))
	f.Add("gpu/h100", "", uint32(1<<31))
	f.Fuzz(func(t *testing.T, class, region string, most uint32) {
		c, regions, n, err := checkFind(&entrypb.FindRequest{Class: class, Regions: []string{region}, Most: most})
		if err != nil {
			return
		}
		if string(c) != class || len(regions) != 1 || string(regions[0]) != region || n < 0 || n > MaxOffers {
			t.Fatalf("read as %q %q %d", c, regions, n)
		}
	})
}
