package harness

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/escrow/deposit"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/gossip"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
)

// adversary is a host that speaks the protocols by itself, as buyer or provider.
type adversary struct {
	t      *testing.T
	n      *Net
	i      int
	host   *p2p.Host
	key    sign.Private
	tag    string
	domain sign.Domain
	orders *gossip.Topic[[]byte]
	keys   market.KeySet
	funded map[market.LeaseID]funded // what it paid for
	blobs  *blob.Store               // that it serves, once it has a workload
}

// funded is where the money of a lease lies.
type funded struct {
	escrow  sign.Key
	funding []byte
}

// fund sets the money of a lease aside, once, as an honest buyer does. On a free network there is none.
func (a *adversary) fund(h held) funded {
	a.t.Helper()
	id := h.core.ID()
	if f, ok := a.funded[id]; ok || a.n.opts.Free {
		return f
	}
	ledger := a.n.access(a.key.Key()).Program
	m, err := deposit.New(a.n.terms, deposit.Deal{
		Order: h.order.ID, Buyer: a.key.Key(), Source: svm.TokenAccount(a.key.Key(), a.n.Genesis.Mint), RefundOwner: a.key.Key(), Keys: a.keys,
	}, escrowParams)
	if err != nil {
		a.t.Fatal(err)
	}
	for ev := escrow.Event(escrow.Fund{Leases: []market.LeaseCore{h.core}, Deadline: h.core.End + 10*marginSlots}); ; ev = (escrow.Ticked{}) {
		if m, _, err = chaintest.Drive(a.t.Context(), ledger, func(deposit.Deposit, []byte) error { return nil }, m, time.Now(), ev); err != nil {
			a.t.Fatal(err)
		}
		if f, ok := m.Funding(id); ok {
			at, _ := m.Escrow()
			a.funded[id] = funded{at, f.Marshal()}
			return a.funded[id]
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// adversary makes stranger i one, connected to every peer, with a funded wallet.
func (n *Net) adversary(t *testing.T, i int) *adversary {
	t.Helper()
	at := n.opts.Providers + n.opts.Buyers + i
	seed, err := p2p.SeedOf(p2ptest.Key(at))
	if err != nil {
		t.Fatal(err)
	}
	a := &adversary{t: t, n: n, i: at, host: n.net.Hosts[at], key: sign.NewPrivate(seed), tag: n.Genesis.Tag(), domain: n.Genesis.Domain(),
		funded: map[market.LeaseID]funded{}}
	n.mint(a.key.Key())
	if a.keys, err = market.NewKeySet(1, a.key.Key()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	g, err := gossip.New(ctx, a.host, gossip.Config{Network: a.tag, Logger: p2ptest.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if a.orders, err = gossip.Join(g, "orders/cpu", func(_ peer.ID, b []byte) ([]byte, error) { return b, nil }, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.orders.Close() })
	for j := range n.Peers {
		if err := a.host.Connect(ctx, n.net.Addr(j)); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// id of a peer on the network.
func (p *Peer) id() peer.ID { return p.net.net.Addr(p.i).ID }

// terms is an order as an honest buyer would write it.
func (a *adversary) terms() market.Order {
	o := market.Order{
		Class: "cpu", Count: 2, UnitsPer: 1, Runtime: "wasm", Slots: 600, Expires: time.Now().Add(30 * time.Second),
		ReplyKey: sealed.Reply(a.key.Seed()).Public(), Draw: match.DrawAll,
	}
	_, _ = rand.Read(o.Nonce[:])
	return o
}

// price is what honest providers ask.
func (a *adversary) price() market.Price {
	_, p := a.n.price()
	return p
}

// slot is the one that it is now.
func (a *adversary) slot() market.Slot {
	a.t.Helper()
	ledger := a.n.access(a.key.Key()).Ledger
	slot, err := ledger.Slot(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	return slot
}

// order seals an order.
func (a *adversary) order(o market.Order) (market.Order, []byte) {
	a.t.Helper()
	o, env, err := market.SealOrder(a.domain, o, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return o, env
}

func (a *adversary) ask(to *Peer, env []byte) (*marketpb.AskReply, error) {
	return protocol.Ask.Call(a.t.Context(), a.host, a.tag, to.id(), &marketpb.AskRequest{Order: env})
}

func (a *adversary) lease(to *Peer, req *marketpb.LeaseRequest) (*marketpb.LeaseReply, error) {
	return protocol.Lease.Call(a.t.Context(), a.host, a.tag, to.id(), req)
}

func (a *adversary) reserve(to *Peer, r *marketpb.Reserve) (*marketpb.LeaseReply, error) {
	return a.lease(to, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Reserve{Reserve: r}})
}

func (a *adversary) sign(to *Peer, s *marketpb.Sign) (*marketpb.LeaseReply, error) {
	return a.lease(to, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Sign{Sign: s}})
}

func (a *adversary) activate(to *Peer, id market.LeaseID, voucher []byte) (*marketpb.LeaseReply, error) {
	return a.lease(to, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Activate{Activate: &marketpb.Activate{
		Lease: id[:], Voucher: voucher, Funding: a.funded[id].funding}}})
}

func (a *adversary) releaseHold(to *Peer, hold []byte) {
	a.t.Helper()
	if _, err := a.lease(to, &marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Release{Release: &marketpb.Release{
		Of: &marketpb.Release_Hold{Hold: hold}}}}); err != nil {
		a.t.Fatal(err)
	}
}

func hold() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	return b
}

// held is a hold that a provider gave, and the lease an honest buyer would sign for it.
type held struct {
	hold  []byte
	order market.Order
	env   []byte
	core  market.LeaseCore
}

// hold has a provider set units aside for rank 0 of a fresh order.
func (a *adversary) hold(to *Peer) held {
	a.t.Helper()
	o, env := a.order(a.terms())
	h := held{hold: hold(), order: o, env: env}
	reply, err := a.reserve(to, &marketpb.Reserve{Hold: h.hold, Order: env, Units: 1, Price: uint64(a.price())})
	if err != nil {
		a.t.Fatalf("reserving: %v", err)
	}
	slot, price := a.slot(), a.price()
	h.core, err = lease.Draft{
		Order: o, Provider: to.Key.Key(), Payout: to.Key.Key(), Units: []market.UnitID{market.UnitID(reply.GetHeld().Units[0])}, RankEpoch: 1,
		Price: price, SlotMillis: slotMillis, Keys: a.keys, Start: slot, ActivateBefore: slot + 50, Nonce: o.Nonce,
	}.Core()
	if err != nil {
		a.t.Fatal(err)
	}
	return h
}

// signature of the adversary over a lease, checked by nobody.
func (a *adversary) signature(c market.LeaseCore) []byte {
	a.t.Helper()
	b := c.Marshal()
	s, err := a.key.Sign(a.domain.Preimage(sign.TagLease, b[:]))
	if err != nil {
		a.t.Fatal(err)
	}
	return s[:]
}

func (a *adversary) request(h held) *marketpb.Sign {
	b := h.core.Marshal()
	return &marketpb.Sign{Hold: h.hold, Core: b[:], Keys: a.keys.Marshal(), Signature: a.signature(h.core)}
}

// signed has a provider sign the lease of a hold.
func (a *adversary) signed(to *Peer) held {
	a.t.Helper()
	h := a.hold(to)
	if _, err := a.sign(to, a.request(h)); err != nil {
		a.t.Fatalf("signing: %v", err)
	}
	return h
}

// pays is the voucher for a lease up to a number of slots after its start, and what may be changed in it.
func (a *adversary) pays(h held, seq, slots uint64, change func(*verify.Voucher)) []byte {
	a.t.Helper()
	amount, err := h.core.Rate.Owed(slots)
	if err != nil {
		a.t.Fatal(err)
	}
	v := verify.Voucher{Version: verify.VoucherVersion, Lease: h.core.ID(), Escrow: a.fund(h).escrow, Seq: seq, Cumulative: amount, Horizon: h.core.Start + market.Slot(slots) + 15}
	if change != nil {
		change(&v)
	}
	s, err := verify.SignVoucher(a.domain, v, a.keys, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return s.Marshal()
}

// active takes a lease and pays its first interval.
func (a *adversary) active(to *Peer) held {
	a.t.Helper()
	h := a.signed(to)
	if _, err := a.activate(to, h.core.ID(), a.pays(h, 1, intervalSlots, nil)); err != nil {
		a.t.Fatalf("activating: %v", err)
	}
	return h
}

// workload is one that runs a program of the network's Fake; the adversary has its module.
func (a *adversary) workload(program string, args ...string) *nodepb.Workload {
	a.t.Helper()
	if a.blobs == nil {
		var err error
		if a.blobs, err = blob.OpenStore(a.t.TempDir(), 1<<20); err != nil {
			a.t.Fatal(err)
		}
		srv := blob.Serve(a.host, a.tag, a.blobs, func(peer.ID, cid.Cid) bool { return true }, nil)
		a.t.Cleanup(srv.Close)
	}
	c, size, err := a.blobs.Put(a.t.Context(), strings.NewReader("starling fake program "+program+"\n"))
	if err != nil {
		a.t.Fatal(err)
	}
	return &nodepb.Workload{Runtime: "wasm", Module: blobPB(a.t, job.Blob{CID: c.String(), Size: size}), Args: args}
}

// exec asks again while the provider has not seen the deposit.
func (a *adversary) exec(to *Peer, req *nodepb.ExecRequest) (reply *nodepb.ExecReply, err error) {
	for range 50 {
		if reply, err = protocol.Exec.Call(a.t.Context(), a.host, a.tag, to.id(), req); err == nil || !strings.Contains(err.Error(), "is not on chain yet") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return reply, err
}

// start runs a workload whose module the provider has already.
func (a *adversary) start(to *Peer, h held, program string, args ...string) (*nodepb.ExecReply, error) {
	id := h.core.ID()
	return a.exec(to, &nodepb.ExecRequest{Lease: id[:], Seq: 1, Op: &nodepb.ExecRequest_Start_{Start: &nodepb.ExecRequest_Start{
		Workload: a.workload(program, args...)}}})
}

// cosign answers the receipts that a provider proposes; voucher reports whether it pays on.
func (a *adversary) cosign(h held, answer func(verify.ReceiptCore) *nodepb.MeterReply) *stream.Server {
	return protocol.Meter.Handle(a.host, a.tag, func(_ context.Context, _ peer.ID, req *nodepb.MeterRequest) (*nodepb.MeterReply, error) {
		core, err := verify.UnmarshalReceiptCore(req.Receipt)
		if err != nil {
			return nil, &stream.Malformed{Reason: err.Error()}
		}
		return answer(core), nil
	}, stream.Limits{Logger: p2ptest.Quiet()})
}

func quoteHandler(a *adversary, take func(market.Quote)) func(context.Context, peer.ID, *marketpb.QuoteRequest) (*marketpb.QuoteReply, error) {
	return func(_ context.Context, _ peer.ID, req *marketpb.QuoteRequest) (*marketpb.QuoteReply, error) {
		plain, err := sealed.Reply(a.key.Seed()).Open(protocol.QuoteBox(a.tag, market.OrderID(req.Order)), req.Box)
		if err != nil {
			return nil, &stream.Malformed{Reason: err.Error()}
		}
		var m marketpb.Quoted
		if err := proto.Unmarshal(plain, &m); err != nil {
			return nil, &stream.Malformed{Reason: err.Error()}
		}
		q, err := market.DecodeQuote(a.domain, m.Quote, time.Now())
		if err != nil {
			return nil, &stream.Malformed{Reason: err.Error()}
		}
		take(q)
		return &marketpb.QuoteReply{}, nil
	}
}

// roguePrice undercuts everybody: 10 base units a second.
const roguePrice = 36_000

// quoteWith is a quote for an order, good but for the change.
func (a *adversary) quoteWith(o market.Order, by sign.Private, change func(*market.Quote)) []byte {
	a.t.Helper()
	q := market.Quote{
		Order: o.ID, Price: roguePrice, Leases: o.Count, Payout: by.Key(), Expires: time.Now().Add(time.Minute), Region: "local", OfferSeq: 1,
		Class: o.Class, PerUnit: a.perUnit(), Addrs: []string{a.host.Addrs()[0].String()},
	}
	if change != nil {
		change(&q)
	}
	b, err := q.Encode(a.domain, by)
	if err != nil {
		a.t.Fatal(err)
	}
	return b
}

// offerWith is an offer of cheap units, good but for the change.
func (a *adversary) offerWith(by sign.Private, change func(*market.Offer)) []byte {
	a.t.Helper()
	o := market.Offer{
		Seq: 1, Class: "cpu", Region: "local", Units: 8, Total: 8, PerUnit: a.perUnit(), Price: roguePrice, MinSlots: 1, MaxSlots: market.MaxLeaseSlots,
		Runtimes: []string{"docker", "wasm"}, Payout: by.Key(), NotBefore: time.Now(), Expires: time.Now().Add(10 * time.Minute),
		Addrs: []string{a.host.Addrs()[0].String()}, GenesisHash: a.n.Genesis.Hash(),
	}
	if change != nil {
		change(&o)
	}
	b, err := o.Encode(a.domain, by)
	if err != nil {
		a.t.Fatal(err)
	}
	return b
}

func (a *adversary) perUnit() market.Resources {
	return market.Resources{MilliCPU: 1000, MemoryMiB: 64, DiskMiB: 16}
}

// brings seals a quote and the offer behind it for an order and brings them to a peer.
func (a *adversary) brings(to peer.ID, o market.Order, quote, offer []byte) error {
	plain, err := proto.Marshal(&marketpb.Quoted{Quote: quote, Offer: offer})
	if err != nil {
		return err
	}
	box, err := sealed.SealReply(o.ReplyKey, protocol.QuoteBox(a.tag, o.ID), plain)
	if err != nil {
		return err
	}
	_, err = protocol.Quote.Call(a.t.Context(), a.host, a.tag, to, &marketpb.QuoteRequest{Order: o.ID[:], Box: box})
	return err
}

// offers is a good quote and the offer behind it.
func (a *adversary) offers(o market.Order, leases uint32) (quote, offer []byte) {
	return a.quoteWith(o, a.key, func(q *market.Quote) { q.Leases = leases }), a.offerWith(a.key, nil)
}
