package main

import (
	"context"
	"crypto/rand"
	"io"
	"math"
	"time"

	"github.com/ipfs/go-cid"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/blob"
)

// order signs an unfunded order for all units of a provider.
func (a *attacker) order(signer sign.Private) ([]byte, error) {
	_, data, err := a.sealed(signer)
	return data, err
}

func (a *attacker) sealed(signer sign.Private) (market.Order, []byte, error) {
	o := market.Order{
		Class: "cpu", Count: 2, UnitsPer: 1, Runtime: "wasm", Slots: 1000, Ceiling: 1_000_000,
		Expires: time.Now().Add(time.Minute), Draw: math.MaxUint32, JobTerms: sign.Sum([]byte("nothing")),
	}
	_, _ = rand.Read(o.Nonce[:])    // never fails
	_, _ = rand.Read(o.ReplyKey[:]) // never fails
	return market.SealOrder(a.genesis.Domain(), o, signer)
}

// freshOrder returns an order of a new key.
func (a *attacker) freshOrder() ([]byte, error) {
	return a.order(newKey())
}

// newKey makes a key.
func newKey() sign.Private {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	return sign.NewPrivate(seed)
}

// orders requests quotes.
func (a *attacker) orders(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	pace(ctx, 12, func(i int) {
		key := keys[i%len(keys)]
		o, err := a.order(a.signers[key])
		if err == nil {
			if _, err = connected(ctx, a.hosts[key], to); err == nil {
				_, err = protocol.Ask.Call(ctx, a.hosts[key], a.genesis.Tag(), to.ID, &marketpb.AskRequest{Order: o})
			}
		}
		c.note(err)
	})
}

// quotes sends boxes with random bytes, for the attacker's published orders and for unknown orders.
func (a *attacker) quotes(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	p := a.pipes(to, a.meshsub())
	topic := a.topic("orders/cpu")
	box := make([]byte, 3<<10)
	_, _ = rand.Read(box) // never fails
	order := randomHash()[2:]
	pace(ctx, 25, func(i int) {
		key := keys[i%len(keys)]
		if i%100 == 0 {
			if o, data, err := a.sealed(a.signers[key]); err == nil {
				if m, err := a.signed(key, topic, data); err == nil {
					order = o.ID[:]
					_ = p.write(ctx, key, func(w io.Writer) error {
						_, err := protodelim.MarshalTo(w, &pb.RPC{Publish: []*pb.Message{m}})
						return err
					})
				}
			}
		}
		if i%10 == 9 {
			order = randomHash()[2:]
		}
		_, err := connected(ctx, a.hosts[key], to)
		if err == nil {
			_, err = protocol.Quote.Call(ctx, a.hosts[key], a.genesis.Tag(), to.ID,
				&marketpb.QuoteRequest{Order: order, Box: box})
		}
		c.note(err)
	})
}

// holds requests holds, and releases every other one.
func (a *attacker) holds(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	pace(ctx, 5, func(i int) {
		key := keys[i%len(keys)]
		h := a.hosts[key]
		o, err := a.order(a.signers[key])
		if err == nil {
			_, err = connected(ctx, h, to)
		}
		if err != nil {
			c.note(err)
			return
		}
		hold := make([]byte, len(market.HoldID{}))
		_, _ = rand.Read(hold) // never fails
		call := func(req *marketpb.LeaseRequest) error {
			_, err := protocol.Lease.Call(ctx, h, a.genesis.Tag(), to.ID, req)
			return err
		}
		c.note(call(&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Reserve{Reserve: &marketpb.Reserve{Hold: hold,
			Order: o, Units: 1, Price: 1_000_000}}}))
		if i%2 == 0 {
			_ = call(&marketpb.LeaseRequest{Step: &marketpb.LeaseRequest_Release{Release: &marketpb.Release{
				Of: &marketpb.Release_Hold{Hold: hold}}}})
		}
	})
}

// circuits requests reservations at a relay.
func (a *attacker) circuits(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	pace(ctx, 1, func(i int) {
		h := a.hosts[keys[i%len(keys)]]
		_, err := connected(ctx, h, to)
		if err == nil {
			tctx, cancel := context.WithTimeout(ctx, patience)
			_, err = client.Reserve(tctx, h, to)
			cancel()
		}
		c.note(err)
	})
}

// files requests files without permission.
func (a *attacker) files(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	pace(ctx, 5, func(i int) {
		h := a.hosts[keys[i%len(keys)]]
		_, err := connected(ctx, h, to)
		if err == nil {
			err = blob.Fetch(ctx, h, a.genesis.Tag(), to.ID, cid.NewCidV1(cid.Raw, randomHash()), 1<<20, a.store, nil)
		}
		c.note(err)
	})
}

// questions sends the requests that any peer may send.
func (a *attacker) questions(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	tag := a.genesis.Tag()
	pace(ctx, 12, func(i int) {
		h := a.hosts[keys[i%len(keys)]]
		_, err := connected(ctx, h, to)
		if err == nil {
			switch i % 4 {
			case 0:
				_, err = protocol.Proof.Call(ctx, h, tag, to.ID, &nodepb.ProofRequest{Hash: randomHash()[2:]})
			case 1:
				_, err = protocol.Anchored.Call(ctx, h, tag, to.ID, &nodepb.AnchoredRequest{})
			case 2:
				_, err = protocol.Coord.Call(ctx, h, tag, to.ID, &nodepb.CoordRequest{})
			case 3:
				_, err = protocol.Guard.Call(ctx, h, tag, to.ID, &nodepb.GuardRequest{})
			}
		}
		c.note(err)
	})
}
