package provider_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/provider/providertest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// wantMalformed holds that a request was refused as one that can never work.
func wantMalformed(t *testing.T, what string, err error) {
	t.Helper()
	var no *stream.Malformed
	if !errors.As(err, &no) || no.Reason == "" {
		t.Errorf("%s: %v, want a malformed request", what, err)
	}
}

// Steps of a lease with missing, short or false parts are refused as malformed, and change nothing.
func TestMalformedSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		o, envelope := b.Buyer.Order(nil)
		held, err := b.reserve(1, envelope)
		if err != nil {
			t.Fatal(err)
		}
		l := b.Sign(o, []market.UnitID{market.UnitID(held.Units[0])})
		core, keys, id := l.Core.Marshal(), b.Keys.Marshal(), make([]byte, 32)
		reserve := func(r *marketpb.Reserve) *marketpb.LeaseRequest {
			return &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Reserve{Reserve: r}}
		}
		signed := func(s *marketpb.Sign) *marketpb.LeaseRequest {
			return &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Sign{Sign: s}}
		}
		activate := func(a *marketpb.Activate) *marketpb.LeaseRequest {
			return &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Activate{Activate: a}}
		}
		extend := func(e *marketpb.Extend) *marketpb.LeaseRequest {
			return &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Extend{Extend: e}}
		}
		release := func(r *marketpb.Release) *marketpb.LeaseRequest {
			return &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Release{Release: r}}
		}
		supervise := func(s *marketpb.Supervise) *marketpb.LeaseRequest {
			return &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Supervise{Supervise: s}}
		}
		for name, req := range map[string]*marketpb.LeaseRequest{
			"no step":                 {},
			"an empty reservation":    reserve(&marketpb.Reserve{}),
			"a short hold":            reserve(&marketpb.Reserve{Hold: id[:15], Order: envelope, Units: 1}),
			"no order":                reserve(&marketpb.Reserve{Hold: id[:16], Units: 1}),
			"no units":                reserve(&marketpb.Reserve{Hold: id[:16], Order: envelope}),
			"more units than ordered": reserve(&marketpb.Reserve{Hold: id[:16], Order: envelope, Units: 1 << 31}),
			"a class of no class": reserve(&marketpb.Reserve{Hold: id[:16], Order: envelope, Units: 1,
				Class: "A b"}),
			"an empty signature": signed(&marketpb.Sign{}),
			"a short signature": signed(&marketpb.Sign{Hold: held.Hold, Core: core[:], Keys: keys,
				Signature: l.Sig[:63]}),
			"a short core": signed(&marketpb.Sign{Hold: held.Hold, Core: core[1:], Keys: keys,
				Signature: l.Sig[:]}),
			"no keys":                     signed(&marketpb.Sign{Hold: held.Hold, Core: core[:], Signature: l.Sig[:]}),
			"an empty activation":         activate(&marketpb.Activate{}),
			"an activation without money": activate(&marketpb.Activate{Lease: id}),
			"an empty extension":          extend(&marketpb.Extend{}),
			"an extension of no core":     extend(&marketpb.Extend{Lease: id, Signature: l.Sig[:]}),
			"an empty release":            release(&marketpb.Release{}),
			"the release of a short hold": release(&marketpb.Release{Of: &marketpb.Release_Hold{Hold: id}}),
			"the release of a short lease": release(&marketpb.Release{
				Of: &marketpb.Release_Lease{Lease: id[:31]},
			}),
			"an empty grant": supervise(&marketpb.Supervise{}),
			"a short grant":  supervise(&marketpb.Supervise{Lease: id, Grant: id}),
			"too many leases": supervise(&marketpb.Supervise{
				Lease: id, Seen: make([]*marketpb.SeenReceipts, 1025),
			}),
		} {
			_, err := b.step(req)
			wantMalformed(t, name, err)
		}
		_, err = b.ask(append(envelope, 0))
		wantMalformed(t, "an order with a byte more", err)
		if _, err := b.sign(o, held); err != nil {
			t.Errorf("after all of them the hold is not signed: %v", err)
		}
	})
}

// An order that is too old, too early, or of a stranger's hand is refused by its own reason.
func TestOrdersOutOfTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, envelope := b.Buyer.Order(nil)
		time.Sleep(2 * time.Minute)
		_, err := b.ask(envelope)
		wantRefused(t, "an order that is over", err, "expired")
		_, err = b.reserve(1, envelope)
		wantRefused(t, "the hold of an order that is over", err, "expired")
		_, envelope = b.Buyer.Order(func(o *market.Order) { o.Slots = 1 << 20 })
		_, err = b.ask(envelope)
		wantRefused(t, "longer than any lease here", err, string(market.ReasonDuration))
		_, envelope = b.Buyer.Order(func(o *market.Order) { o.Class = "gpu/h100" })
		_, err = b.ask(envelope)
		wantRefused(t, "a class that is not sold", err, string(market.ReasonClass))
		for range 200 {
			_, envelope = b.Buyer.Order(nil)
			_, err = b.ask(envelope)
		}
		wantRefused(t, "the two-hundredth order at once", err, string(market.ReasonLimit))
		if c := b.Counts(); c.Quotes[string(market.ReasonLimit)] < 50 || c.Quotes["quoted"] < 90 {
			t.Errorf("counted %+v", c.Quotes)
		}
	})
}

// follow signs the lease that follows on another one.
func follow(t *testing.T, b *bench, l providertest.Signed, slots market.Slot) *marketpb.LeaseRequest {
	t.Helper()
	next, err := l.Core.Follow(l.Core.End + slots)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := next.Sign(providertest.Genesis.Domain(), b.Key)
	if err != nil {
		t.Fatal(err)
	}
	core := next.Marshal()
	return &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Extend{
		Extend: &marketpb.Extend{Lease: l.ID[:], Core: core[:], Signature: sig[:]},
	}}
}

// A lease is extended once, while the provider sells; a promise that was made is repeated while it is paused.
func TestExtensions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.lease(1)
		if err := b.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := b.step(follow(t, b, l, 500))
		wantRefused(t, "an extension while paused", err, string(market.ReasonPaused))
		if err := b.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = b.step(follow(t, b, l, 200_000))
		wantRefused(t, "an extension for ages", err, string(market.ReasonDuration))
		first, err := b.step(follow(t, b, l, 500))
		if err != nil || len(first.GetExtended().GetSignature()) != sign.SignatureSize {
			t.Fatalf("extended by %v: %v", first, err)
		}
		if err := b.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		again, err := b.step(follow(t, b, l, 500))
		if err != nil || string(again.GetExtended().GetSignature()) != string(first.GetExtended().GetSignature()) {
			t.Errorf("asked again, the provider signs %v, %v, want the same", again, err)
		}
		if _, err := b.step(follow(t, b, l, 501)); err == nil {
			t.Error("two successors of one lease are signed")
		}
		other := l
		other.ID = market.LeaseID{7}
		if _, err := b.step(follow(t, b, other, 500)); err == nil {
			t.Error("a lease that is not here is extended")
		}
	})
}

// A grant of the guardians is for one job and one peer, and its epoch only rises; the receipts that the new supervisor
// lacks come in answers of bounded size.
func TestSupervision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		l := b.lease(1)
		time.Sleep(3 * time.Minute)
		grant := func(change func(*verify.SupervisionGrant)) []byte {
			g := verify.SignedSupervisionGrant{SupervisionGrant: verify.SupervisionGrant{
				Version: verify.GrantVersion, Job: sign.Hash{4}, Epoch: 1, Supervisor: b.Key.Key(),
				Guardians: l.Core.VoucherKeys,
			}}
			g.Set = b.Keys
			change(&g.SupervisionGrant)
			g, err := g.With(providertest.Genesis.Domain(), b.Key)
			if err != nil {
				t.Fatal(err)
			}
			return g.Marshal()
		}
		supervise := func(raw []byte, last uint64, leases ...market.LeaseID) (*marketpb.Supervised, error) {
			s := &marketpb.Supervise{Lease: l.ID[:], Grant: raw}
			for _, id := range leases {
				s.Seen = append(s.Seen, &marketpb.SeenReceipts{Lease: id[:], Last: last})
			}
			reply, err := b.step(&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Supervise{Supervise: s}})
			return reply.GetSupervised(), err
		}
		for name, change := range map[string]func(*verify.SupervisionGrant){
			"another job":       func(g *verify.SupervisionGrant) { g.Job = sign.Hash{5} },
			"another peer":      func(g *verify.SupervisionGrant) { g.Supervisor = sign.Key{5} },
			"other guardians":   func(g *verify.SupervisionGrant) { g.Guardians = sign.Hash{5} },
			"no epoch":          func(g *verify.SupervisionGrant) { g.Epoch = 0 },
			"a version to come": func(g *verify.SupervisionGrant) { g.Version++ },
		} {
			_, err := supervise(grant(change), 0)
			if err == nil || strings.Contains(err.Error(), "internal") {
				t.Errorf("a grant for %s: %v, want a refusal", name, err)
			}
		}
		valid := grant(func(g *verify.SupervisionGrant) { g.Epoch = 3 })
		out, err := supervise(valid, 0, market.LeaseID{9}, l.ID)
		if err != nil || len(out.Receipts) != 32 || !out.More {
			t.Fatalf("%d receipts, more %v: %v; want 32 and more", len(out.GetReceipts()), out.GetMore(), err)
		}
		last, err := verify.UnmarshalReceipt(out.Receipts[31])
		if err != nil {
			t.Fatal(err)
		}
		out, err = supervise(valid, uint64(last.Seq), l.ID)
		if err != nil || len(out.Receipts) == 0 || len(out.Receipts) > 32 {
			t.Fatalf("%d receipts after number %d: %v", len(out.GetReceipts()), last.Seq, err)
		}
		next, err := verify.UnmarshalReceipt(out.Receipts[0])
		if err != nil || next.Seq != last.Seq+1 {
			t.Errorf("receipt %d follows on %d: %v", next.Seq, last.Seq, err)
		}
		if out, err := supervise(valid, 1<<40, l.ID); err != nil || len(out.Receipts) != 0 || out.More {
			t.Errorf("%d receipts after the last: %v", len(out.GetReceipts()), err)
		}
		_, err = supervise(grant(func(g *verify.SupervisionGrant) { g.Epoch = 2 }), 0)
		wantRefused(t, "an earlier epoch", err, string(market.ReasonSupervision))
		_, err = supervise(valid, 0, market.LeaseID{})
		if err != nil {
			t.Errorf("receipts of an unknown lease: %v, want none", err)
		}
		s := &marketpb.Supervise{Lease: l.ID[:], Grant: valid, Seen: []*marketpb.SeenReceipts{{Lease: l.ID[:9]}}}
		_, err = b.step(&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Supervise{Supervise: s}})
		wantMalformed(t, "a short lease among those that are known", err)
	})
}
