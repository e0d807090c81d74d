package node

import (
	"context"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/exclusive"
)

// PublishProbes has this peer give records of probes to everybody. Call it before Run.
func (n *Node) PublishProbes(from exclusive.Published) { n.probes = from }

// ProbeRecord is a record of a probe that a peer gives to everybody.
func (n *Node) ProbeRecord(ctx context.Context, of sign.Key, hash sign.Hash) ([]byte, error) {
	ask, own, err := n.asks(of)
	switch {
	case err != nil:
		return nil, err
	case own && n.probes == nil:
		return nil, exclusive.ErrNoRecord
	case own:
		return n.probes.Probe(ctx, hash)
	}
	r, err := ask.Record(ctx, of, hash)
	if err != nil {
		return nil, err
	}
	return r.Marshal(), nil
}

// ProbeRecords are the hashes of all that a peer gives.
func (n *Node) ProbeRecords(ctx context.Context, of sign.Key) ([]sign.Hash, error) {
	ask, own, err := n.asks(of)
	switch {
	case err != nil || own && n.probes == nil:
		return nil, err
	case own:
		return n.probes.Probes(ctx)
	}
	return ask.List(ctx, of)
}

// asks is how a peer is asked; own says that it is this one.
func (n *Node) asks(of sign.Key) (ask exclusive.Asker, own bool, err error) {
	if n.p.Light != nil {
		return ask, false, &api.Error{Status: 409, Code: "light", Message: "a light client asks nobody for records of probes: it takes no part in the network"}
	}
	return exclusive.Asker{Host: n.p.Host, Tag: n.tag}, of.IsZero() || of == n.p.Key.Key(), nil
}
