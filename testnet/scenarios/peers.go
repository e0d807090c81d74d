//go:build linux

package scenarios

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/natlab"
)

// Port is where a peer at a site listens.
const Port = 4001

// At is where a peer is that lives at a site and goes by its name: it listens on TCP and QUIC, and sees the chain at rpc.
func At(site *natlab.Site, name, rpc string) testnet.Place {
	return testnet.Place{
		Enter: site.Enter, Dial: site.Dial, RPC: rpc, Region: name,
		Listen: []string{fmt.Sprintf("/ip4/0.0.0.0/tcp/%d", Port), fmt.Sprintf("/ip4/0.0.0.0/udp/%d/quic-v1", Port)},
	}
}

// Relay makes a place one whose peer serves as a relay and whom the others ask first.
func Relay(p testnet.Place, site *natlab.Site) testnet.Place {
	p.Config = "relay: {serve: true}"
	p.Boot = fmt.Sprintf("/ip4/%s/tcp/%d", site.Public, Port)
	return p
}

// Paid holds an ended job of a network's to its receipts: what each lease says it owes was paid, and no more. c is its buyer.
func Paid(ctx context.Context, net *testnet.Network, c *api.Client, id string) (buyer.Job, error) {
	j, err := c.Job(ctx, id)
	if err != nil {
		return j, err
	}
	accounts, err := c.Receipts(ctx, id)
	if err != nil {
		return j, err
	}
	p, err := proof.New(net.Genesis, j, accounts)
	if err != nil {
		return j, err
	}
	v, err := p.Check()
	if err != nil {
		return j, err
	}
	if !j.State.Ended() || j.Owed != j.Paid || v.Owed != j.Paid || j.Paid == 0 {
		return j, fmt.Errorf("%s: owed %d, paid %d, the receipts say %d", j.Summary(), j.Owed, j.Paid, v.Owed)
	}
	return j, nil
}
