package harness

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

func blobPB(t *testing.T, b job.Blob) *nodepb.Blob {
	t.Helper()
	c, err := cid.Parse(b.CID)
	if err != nil {
		t.Fatal(err)
	}
	return &nodepb.Blob{Cid: c.Bytes(), Size: uint64(b.Size), Tree: b.Tree}
}

// told checks that a request was answered with "malformed" or a refusal with this code, and words that say why.
func told(t *testing.T, what string, err error, code string, words ...string) {
	t.Helper()
	var no *stream.Refused
	var bad *stream.Malformed
	switch {
	case err == nil:
		t.Errorf("%s was accepted", what)
		return
	case errors.As(err, &no):
		if no.Code != code {
			t.Errorf("%s: refused as %q, want %q: %v", what, no.Code, code, err)
		}
	case errors.As(err, &bad):
		if code != "malformed" {
			t.Errorf("%s: called malformed, want refused as %q: %v", what, code, err)
		}
	default:
		t.Errorf("%s: %v, want an answer", what, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", what, err, w)
		}
	}
}

// smallOrder replaces the key of an envelope by the identity point, and its signature by one that lax
// implementations take for that key's signature under anything.
func smallOrder(t *testing.T, env []byte) []byte {
	t.Helper()
	e, err := sign.UnmarshalEnvelope(env, 1<<12)
	if err != nil {
		t.Fatal(err)
	}
	e.Key, e.Signature = sign.Key{1}, sign.Signature{1}
	return e.Marshal()
}

func flip(b []byte) []byte {
	b = slices.Clone(b)
	b[len(b)-1] ^= 1
	return b
}

// badOrders are orders that no provider may answer.
func (a *adversary) badOrders(other []byte) []struct {
	name, code string
	env        []byte
	words      []string
} {
	_, good := a.order(a.terms())
	with := func(change func(*market.Order)) []byte {
		o := a.terms()
		change(&o)
		_, env := a.order(o)
		return env
	}
	elsewhere := a.domain
	elsewhere.Network = "elsewhere"
	_, foreign, err := market.SealOrder(elsewhere, a.terms(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return []struct {
		name, code string
		env        []byte
		words      []string
	}{
		{"an empty order", "malformed", nil, []string{"envelope"}},
		{"noise for an order", "malformed", []byte(strings.Repeat("noise", 50)), nil},
		{"a cut order", "malformed", good[:len(good)-3], nil},
		{"a badly signed order", "malformed", flip(good), []string{"bad signature"}},
		{"an order under a small-order key", "malformed", smallOrder(a.t, good), []string{"small order"}},
		{"an order for another network", "malformed", foreign, []string{"bad signature"}},
		{"an expired order", "expired", with(func(o *market.Order) { o.Expires = time.Now().Add(-time.Minute) }), []string{"expired"}},
		{"an order from the future", "expired", with(func(o *market.Order) { o.Expires = time.Now().Add(240 * time.Hour) }), []string{"not valid yet"}},
		{"another buyer's order", "malformed", other, []string{"another buyer"}},
	}
}

// A provider answers every bad request with a clear error, keeps nothing of it and
// serves others as before.
func TestBadRequestsToProvider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Units: 5, Strangers: 2, Programs: programs, Log: Logger()})
		a, other := n.adversary(t, 0), n.adversary(t, 1)
		time.Sleep(3 * time.Second)
		p, b := n.Provider(1), n.Buyer(0)
		_, theirs := other.order(other.terms())

		for _, c := range a.badOrders(theirs) {
			_, err := a.ask(p, c.env)
			told(t, c.name+", asked", err, c.code, c.words...)
			_, err = a.reserve(p, &marketpb.Reserve{Hold: hold(), Order: c.env, Units: 1, Price: uint64(a.price())})
			told(t, c.name+", reserved", err, c.code, c.words...)
		}
		wide := protocol.Ask
		wide.MaxRequest = 1 << 20
		_, err := wide.Call(t.Context(), a.host, a.tag, p.id(), &marketpb.AskRequest{Order: make([]byte, 100<<10)})
		told(t, "an oversized order", err, "malformed", "too large")

		a.badReserves(p)
		a.badSigns(p)
		a.badActivates(p, other)
		a.badExecs(p, other)
		a.badBlobs(p, b)

		j := b.Wait(b.Submit(b.Job("work", 2, "3")).ID, time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		n.Settle()
		for i := range 2 {
			n.checkQuiet(t, n.Provider(i), b)
		}
	})
}

func (a *adversary) badReserves(p *Peer) {
	_, good := a.order(a.terms())
	first := hold()
	for _, c := range []struct {
		name, code string
		req        *marketpb.Reserve
		words      []string
	}{
		{"a short hold id", "malformed", &marketpb.Reserve{Hold: []byte{1}, Order: good, Units: 1, Price: uint64(a.price())}, []string{"16 bytes"}},
		{"a zero hold id", "hold", &marketpb.Reserve{Hold: make([]byte, 16), Order: good, Units: 1, Price: uint64(a.price())}, []string{"not set"}},
		{"units that the order does not say", "malformed", &marketpb.Reserve{Hold: hold(), Order: good, Units: 2, Price: uint64(a.price())}, []string{"units: got 2"}},
		{"a price below the ask", "price", &marketpb.Reserve{Hold: hold(), Order: good, Units: 1, Price: 359_999}, []string{"0.36"}},
		{"no reserve at all", "malformed", nil, nil},
	} {
		_, err := a.reserve(p, c.req)
		told(a.t, c.name, err, c.code, c.words...)
	}
	if _, err := a.lease(p, &marketpb.LeaseRequest{}); err == nil {
		a.t.Error("an empty lease request was accepted")
	}
	// Asked again, a provider gives the same hold; the id for something else is refused.
	req := &marketpb.Reserve{Hold: first, Order: good, Units: 1, Price: uint64(a.price())}
	one, err := a.reserve(p, req)
	two, err2 := a.reserve(p, req)
	if err != nil || err2 != nil || !slices.EqualFunc(one.GetHeld().Units, two.GetHeld().Units, slices.Equal) {
		a.t.Errorf("a repeated reserve: %v, %v; %v, %v", one, err, two, err2)
	}
	_, err = a.reserve(p, &marketpb.Reserve{Hold: first, Order: good, Rank: 1, Units: 1, Price: uint64(a.price())})
	told(a.t, "a hold id used twice", err, "conflict", "in use")
	_, err = a.reserve(p, &marketpb.Reserve{Hold: hold(), Order: good, Units: 1, Price: uint64(a.price())})
	told(a.t, "one rank held twice", err, "conflict", "rank 0")
	// Units that nobody signs for are free again when the hold expires.
	if _, free := p.Node.Provider().Units(); free != 4 {
		a.t.Errorf("%d units are free beside one hold", free)
	}
	time.Sleep(12 * time.Second)
	if _, free := p.Node.Provider().Units(); free != 5 {
		a.t.Errorf("%d units are free after the hold expired", free)
	}
	_, err = a.sign(p, &marketpb.Sign{Hold: first, Core: make([]byte, 296), Keys: a.keys.Marshal(), Signature: make([]byte, 64)})
	told(a.t, "a core of zeros", err, "malformed")
}

// Each field of a lease is changed in turn: the provider signs nothing that was not agreed.
func (a *adversary) badSigns(p *Peer) {
	h := a.hold(p)
	for _, c := range []struct {
		field, code string
		change      func(*market.LeaseCore)
	}{
		{"version", "malformed", func(c *market.LeaseCore) { c.Version = 9 }},
		{"flags", "malformed", func(c *market.LeaseCore) { c.Flags = 1 }},
		{"order", "terms", func(c *market.LeaseCore) { c.Order[0] ^= 1 }},
		{"buyer", "terms", func(c *market.LeaseCore) { c.Buyer = a.n.Buyer(0).Key.Key() }},
		{"provider", "terms", func(c *market.LeaseCore) { c.Provider = a.n.Provider(0).Key.Key() }},
		{"payout", "terms", func(c *market.LeaseCore) { c.Payout = a.key.Key() }},
		{"units root", "terms", func(c *market.LeaseCore) { c.UnitsRoot[0] ^= 1 }},
		{"units", "terms", func(c *market.LeaseCore) { c.Units = 2 }},
		{"rank", "terms", func(c *market.LeaseCore) { c.Rank = 1 }},
		{"terms", "terms", func(c *market.LeaseCore) { c.Terms[0] ^= 1 }},
		{"rate", "terms", func(c *market.LeaseCore) { c.Rate-- }},
		{"cap", "terms", func(c *market.LeaseCore) { c.Cap++ }},
		{"start", "terms", func(c *market.LeaseCore) { c.Start, c.End = c.Start+1000, c.End+1000 }},
		{"activate before, passed", "terms", func(c *market.LeaseCore) { c.ActivateBefore = 1 }},
		{"activate before, late", "terms", func(c *market.LeaseCore) { c.ActivateBefore += 500 }},
		{"end", "terms", func(c *market.LeaseCore) { c.End++ }},
		{"voucher keys", "terms", func(c *market.LeaseCore) { c.VoucherKeys[0] ^= 1 }},
	} {
		changed := h
		c.change(&changed.core)
		_, err := a.sign(p, a.request(changed))
		told(a.t, "a lease with another "+c.field, err, c.code)
	}
	good := a.request(h)
	for _, c := range []struct {
		name, code string
		req        *marketpb.Sign
	}{
		{"a bad signature", "signature", &marketpb.Sign{Hold: good.Hold, Core: good.Core, Keys: good.Keys, Signature: flip(good.Signature)}},
		{"a small-order signature", "signature", &marketpb.Sign{Hold: good.Hold, Core: good.Core, Keys: good.Keys, Signature: append([]byte{1}, make([]byte, 63)...)}},
		{"a short signature", "malformed", &marketpb.Sign{Hold: good.Hold, Core: good.Core, Keys: good.Keys, Signature: good.Signature[:63]}},
		{"a cut core", "malformed", &marketpb.Sign{Hold: good.Hold, Core: good.Core[:200], Keys: good.Keys, Signature: good.Signature}},
		{"a bad key set", "malformed", &marketpb.Sign{Hold: good.Hold, Core: good.Core, Keys: []byte{1, 2, 3}, Signature: good.Signature}},
		{"an unknown hold", "hold", &marketpb.Sign{Hold: hold(), Core: good.Core, Keys: good.Keys, Signature: good.Signature}},
	} {
		_, err := a.sign(p, c.req)
		told(a.t, c.name, err, c.code)
	}
	one, err := a.sign(p, good)
	two, err2 := a.sign(p, good)
	if err != nil || err2 != nil || !slices.Equal(one.GetSigned().Signature, two.GetSigned().Signature) {
		a.t.Errorf("a lease as agreed: %v, again: %v", err, err2)
	}
	other := h
	other.core.Nonce[0] ^= 1
	_, err = a.sign(p, a.request(other))
	told(a.t, "a second lease for one hold", err, "conflict", "already signed")
	a.releaseHold(p, h.hold)
	_, err = a.sign(p, good)
	told(a.t, "a released hold", err, "hold", "no such hold")
}

func (a *adversary) badActivates(p *Peer, other *adversary) {
	h, elsewhere := a.signed(p), a.signed(p)
	id := h.core.ID()
	good := a.pays(h, 1, intervalSlots, nil)
	for _, c := range []struct {
		name, code string
		id         market.LeaseID
		voucher    []byte
		words      []string
	}{
		{"an unknown lease", "lease", market.LeaseID{1}, good, []string{"no such lease"}},
		{"no voucher", "malformed", id, nil, nil},
		{"a cut voucher", "malformed", id, good[:100], nil},
		{"a badly signed voucher", "voucher", id, flip(good), []string{"signature"}},
		{"another lease's voucher", "voucher", id, a.pays(elsewhere, 1, intervalSlots, nil), []string{"lease"}},
		{"too small a voucher", "voucher", id, a.pays(h, 1, intervalSlots/2, nil), []string{"first interval"}},
		{"a voucher without a horizon", "voucher", id, a.pays(h, 1, intervalSlots, func(v *verify.Voucher) { v.Horizon = v.Horizon - 100 }), nil},
		{"a voucher over the cap", "voucher", id, a.pays(h, 1, intervalSlots, func(v *verify.Voucher) { v.Cumulative = h.core.Cap + 1 }), []string{"cap"}},
		{"a voucher of an escrow", "voucher", id, a.pays(h, 1, intervalSlots, func(v *verify.Voucher) { v.Escrow = sign.Key{7} }), nil},
		{"a final voucher", "voucher", id, a.pays(h, 1, intervalSlots, func(v *verify.Voucher) { v.Flags = verify.VoucherFinal }), nil},
	} {
		_, err := a.activate(p, c.id, c.voucher)
		told(a.t, c.name, err, c.code, c.words...)
	}
	_, err := a.lease(p, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Activate{Activate: &marketpb.Activate{Lease: id[:5], Voucher: good}}})
	told(a.t, "a short lease id", err, "malformed", "32 bytes")
	_, err = other.activate(p, id, good)
	told(a.t, "another buyer's lease", err, "lease", "no such lease")
	// Nobody but the buyer can release it either.
	other.releaseHold(p, h.hold)
	if _, err := a.activate(p, id, good); err != nil {
		a.t.Errorf("a good voucher after all: %v", err)
	}
	if _, err := a.activate(p, id, good); err != nil {
		a.t.Errorf("and again: %v", err)
	}
	a.releaseHold(p, h.hold)
	// A lease that is signed and never paid for is void when its time is over.
	time.Sleep(10 * time.Second)
	_, err = a.activate(p, elsewhere.core.ID(), a.pays(elsewhere, 1, intervalSlots, nil))
	told(a.t, "a lease that was not paid for in time", err, "lease", "no such lease")
	_, env := a.order(a.terms())
	_, err = a.reserve(p, &marketpb.Reserve{Hold: hold(), Order: env, Units: 1, Price: uint64(a.price())})
	told(a.t, "units that were not paid for twice", err, "unpaid", "did not pay")
	time.Sleep(10 * time.Minute)
	a.n.checkQuiet(a.t, p)
}

func (a *adversary) badExecs(p *Peer, other *adversary) {
	h, unpaid := a.active(p), a.signed(p)
	id, idle := h.core.ID(), unpaid.core.ID()
	op := func(w *nodepb.Workload) *nodepb.ExecRequest_Start_ {
		return &nodepb.ExecRequest_Start_{Start: &nodepb.ExecRequest_Start{Workload: w}}
	}
	good := a.workload("work", "60")
	with := func(change func(*nodepb.Workload)) *nodepb.ExecRequest_Start_ {
		w := a.workload("work", "60")
		change(w)
		return op(w)
	}
	for _, c := range []struct {
		name, code string
		req        *nodepb.ExecRequest
		words      []string
	}{
		{"an empty request", "malformed", &nodepb.ExecRequest{}, []string{"32 bytes"}},
		{"no operation", "malformed", &nodepb.ExecRequest{Lease: id[:], Seq: 1}, []string{"request without an operation"}},
		{"an unknown lease", "lease", &nodepb.ExecRequest{Lease: make([]byte, 32), Seq: 1, Op: op(good)}, []string{"no such lease"}},
		{"a lease that is not paid for", "lease", &nodepb.ExecRequest{Lease: idle[:], Seq: 1, Op: op(good)}, []string{"signed"}},
		{"no workload", "workload", &nodepb.ExecRequest{Lease: id[:], Seq: 1, Op: op(nil)}, nil},
		{"another runtime", "workload", &nodepb.ExecRequest{Lease: id[:], Seq: 1, Op: with(func(w *nodepb.Workload) { w.Runtime = "docker" })}, []string{"docker"}},
		{"no module", "workload", &nodepb.ExecRequest{Lease: id[:], Seq: 1, Op: with(func(w *nodepb.Workload) { w.Module = nil })}, []string{"module"}},
		{"a bad digest", "workload", &nodepb.ExecRequest{Lease: id[:], Seq: 1, Op: with(func(w *nodepb.Workload) { w.Module.Cid = []byte("x") })}, []string{"digest"}},
		{"a path outside", "workload", &nodepb.ExecRequest{Lease: id[:], Seq: 1, Op: with(func(w *nodepb.Workload) { w.Outputs = []string{"/out/../../etc"} })}, []string{"path"}},
		{"the runtime's own path", "workload", &nodepb.ExecRequest{Lease: id[:], Seq: 1, Op: with(func(w *nodepb.Workload) { w.Outputs = []string{"/run/starling"} })}, []string{"kept for the runtime"}},
		{"stopping nothing", "execution", &nodepb.ExecRequest{Lease: id[:], Seq: 5, Op: &nodepb.ExecRequest_Stop_{Stop: &nodepb.ExecRequest_Stop{}}}, []string{"no such execution"}},
		{"the status of nothing", "execution", &nodepb.ExecRequest{Lease: id[:], Seq: 5, Op: &nodepb.ExecRequest_Status_{}}, []string{"no such execution"}},
	} {
		_, err := a.exec(p, c.req)
		told(a.t, c.name, err, c.code, c.words...)
	}
	wide := protocol.Exec
	wide.MaxRequest = 4 << 20
	_, err := wide.Call(a.t.Context(), a.host, a.tag, p.id(), &nodepb.ExecRequest{Lease: id[:], Seq: 1, Op: with(func(w *nodepb.Workload) { w.Args = []string{strings.Repeat("x", protocol.MaxWorkload)} })})
	told(a.t, "an oversized workload", err, "malformed", "too large")
	if _, err := a.start(p, h, "work", "60"); err != nil {
		a.t.Errorf("a good workload: %v", err)
	}
	_, err = a.exec(p, &nodepb.ExecRequest{Lease: id[:], Seq: 2, Op: op(good)})
	told(a.t, "a second execution at a time", err, "workload", "still runs")
	_, err = other.start(p, h, "work", "60")
	told(a.t, "another buyer's lease", err, "lease", "no such lease")
	watch := func(who *adversary, req *nodepb.WatchRequest) error {
		items, err := protocol.Watch.Open(a.t.Context(), who.host, a.tag, p.id(), req)
		if err != nil {
			return err
		}
		defer items.Close()
		_, err = items.Next()
		return err
	}
	told(a.t, "watching nothing", watch(a, &nodepb.WatchRequest{}), "malformed", "32 bytes")
	told(a.t, "watching an unknown execution", watch(a, &nodepb.WatchRequest{Lease: id[:], Seq: 9}), "execution", "no such execution")
	told(a.t, "watching another buyer's lease", watch(other, &nodepb.WatchRequest{Lease: id[:], Seq: 1}), "lease", "no such lease")
	a.releaseHold(p, h.hold)
	a.releaseHold(p, unpaid.hold)
	time.Sleep(25 * time.Second)
	a.n.checkQuiet(a.t, p)
}

// badBlobs asks for files that are not for it: it cannot tell whether they are there.
func (a *adversary) badBlobs(p, b *Peer) {
	store, err := blob.OpenStore(a.t.TempDir(), 1<<20)
	if err != nil {
		a.t.Fatal(err)
	}
	secret := b.Put("not for everybody")
	c := cid.MustParse(secret.CID)
	for _, from := range []*Peer{p, b} {
		if err := blob.Fetch(a.t.Context(), a.host, a.tag, from.id(), c, 1<<20, store, nil); !errors.Is(err, blob.ErrNotFound) {
			a.t.Errorf("a file that is not for it: %v", err)
		}
	}
	if err := blob.Fetch(a.t.Context(), a.host, a.tag, b.id(), cid.Undef, 1<<20, store, nil); err == nil {
		a.t.Error("a file without a name was fetched")
	}
}
