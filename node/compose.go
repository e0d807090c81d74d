package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/execnet"
	"github.com/starling-network/starling/node/files"
	"github.com/starling-network/starling/node/inventory"
	"github.com/starling-network/starling/node/network"
	"github.com/starling-network/starling/node/onchain"
	"github.com/starling-network/starling/node/proof/room"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/node/replies"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/status"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify"
)

// roomsOf returns the list that makes a peer, in order of dependence. Each entry adds its services, and gives later
// ones what they take from it.
func roomsOf(n *Node) (list []func(context.Context) error) {
	c, light, token := n.p.Config, n.p.Light != nil, n.p.Program != nil
	audited := n.p.Genesis.AuditSlots > 0 && (!light || n.p.Blocks() != nil)
	for _, r := range []struct {
		in   bool
		room func(context.Context) error
	}{
		{true, n.ground},
		{token, n.pay},
		{true, n.know},
		{audited && light, n.observeLight},
		{audited && !light, n.observe},
		{true, n.keep},
		{light, n.enter},
		{token && !light, n.govern},
		{!light, n.meet},
		{audited && !light, n.hear},
		{!light, n.trade},
		{c.Provide.Enabled && !light, n.sell},
		{audited && !light, n.verify},
		{audited, n.check},
		{token && !light, n.guard},
		{true, n.buy},
		{token, n.earn},
		{token && !light, n.watch},
		{audited && token && !light, n.reward},
		{!light, n.anchor},
		{c.Entry.Serve && !light, n.serve},
		{true, n.open},
	} {
		if r.in {
			list = append(list, r.room)
		}
	}
	return list
}

// ground composes the journal, the clock, the host, and the view of the chain.
func (n *Node) ground(context.Context) error {
	journal := store.Watch(n.p.Store)
	n.p.Store = journal
	p := n.p
	n.slots = slots.New(p.Ledger, p.Genesis.SlotMillis, p.SlotEvery, p.Log)
	n.services.Add(journal, n.slots, service.Checked(service.Loop("host", p.Host.Run),
		func() *service.Problem { return joined(p.Host) }))
	n.network = settle.NewNetwork(p.Genesis, p.Program, p.Store)
	n.chain = onchain.New(onchain.Config{Genesis: p.Genesis, Program: p.Program, Network: n.network, Log: p.Log})
	return nil
}

// pay composes the watch of the network's program, and the escrows that leases are paid from.
func (n *Node) pay(context.Context) error {
	n.services.Add(n.chain)
	c := n.p.Config
	when, err := c.Provide.Claim.When(n.p.Genesis)
	n.given.sold = &provider.Escrows{
		Chain: n.p.Program, Network: n.network, Params: n.p.Escrow, Fees: c.Solana.Fees.Bids(), When: when,
		WaitFunded: c.Provide.StartWhen == inventory.StartFunded,
	}
	n.given.bought = &buyer.Escrows{
		Chain: n.p.Program, Network: n.network, Params: n.p.Escrow, Fees: c.Solana.Fees.Bids(),
	}
	return err
}

// know composes the block list and the reputation of others.
func (n *Node) know(ctx context.Context) (err error) {
	p := n.p
	if n.blocks, err = block.Open(ctx, p.Store); err != nil {
		return err
	}
	if n.reputation, err = reputation.Open(ctx, reputation.Config{
		Genesis: p.Genesis, Self: p.Key.Key(), Store: p.Store, Log: p.Log.With("role", "reputation"),
		Slot: func() (market.Slot, error) { return n.slots.Now(time.Now()) }, Stakes: n.chain.Stakes,
	}); err != nil {
		return fmt.Errorf("setting up reputation: %w", err)
	}
	n.services.Add(reputation.NewService(n.reputation, p.Genesis.Decimals))
	n.receipts.add(func(l market.Lease, _ []market.UnitID, r verify.Receipt) { n.reputation.File(l, r) })
	return nil
}

// keep composes the peer's proofs and files.
func (n *Node) keep(ctx context.Context) (err error) {
	p := n.p
	if n.proofs, err = room.Open(ctx, room.Config{
		Genesis: p.Genesis, Self: p.Key.Key(), Host: p.Host, Store: p.Store, Log: p.Log.With("role", "proofs"),
		Slot: func() (market.Slot, error) { return n.slots.Now(time.Now()) },
		Book: n.reputation, KeyOf: status.KeyOf, Program: p.Program, Registered: n.chain.Registry(),
		Light: p.Light != nil,
	}); err != nil {
		return fmt.Errorf("opening the proofs: %w", err)
	}
	web, err := p.Config.Inputs.Reader()
	if err != nil {
		return err
	}
	n.files = files.New(files.Config{Host: p.Host, Network: n.tag, Blobs: p.Blobs, Web: web, Log: p.Log,
		Fellows: p.Config.Inputs.Fellows})
	n.services.Add(n.files)
	return nil
}

// joined returns the problem of a peer with a host that reaches no other.
func joined(h *p2p.Host) *service.Problem {
	tried, refusal, alone := h.Alone()
	switch {
	case !alone:
		return nil
	case refusal != nil:
		return &service.Problem{Problem: "connected to no other peer: " + refusal.Text, Remedy: refusal.Advice}
	}
	return &service.Problem{
		Problem: "connected to no other peer; tried " + strings.Join(append(tried, "remembered peers"), ", "),
		Remedy: "check bootstrap in config.yaml and the network's genesis; starling peer ping ADDRESS shows why a " +
			"peer is not reached",
	}
}

// wait is the loop of a service that only answers.
func wait(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// meet composes how the peer meets others, and the proofs that it publishes there.
func (n *Node) meet(ctx context.Context) (err error) {
	p := n.p
	if n.net, err = network.Open(ctx, network.Config{
		Host: p.Host, Genesis: p.Genesis, Key: p.Key.Key(), Store: p.Store, Values: n.proofs.Values(),
		Registered: n.chain.Staked(), Log: p.Log,
	}); err != nil {
		return err
	}
	n.services.Add(n.net.Services()...)
	n.prove()
	return nil
}

// trade composes the market, and the ways of quotes and of executions' packets.
func (n *Node) trade(ctx context.Context) error {
	p := n.p
	m, err := inventory.ReadMachine()
	if err != nil {
		return err
	}
	n.gpus = inventory.NewGPUs(p.GPUs)
	n.devices = inventory.NewDevices(n.gpus, n.slots, p.Log.With("role", "audit"))
	if n.lots, err = n.gpus.Lots(ctx, p.Config.Provide, inventory.Need{
		Owner: p.Key.Key(), Decimals: p.Genesis.Decimals, Containers: p.Runtimes.Containers(), Log: p.Log,
		DiskSlots: p.Genesis.SlotsIn(p.Config.Provide.Disk.MaxTime),
	}); err != nil {
		return fmt.Errorf("finding the units to sell: %w", err)
	}
	var sells []market.Class
	for _, l := range n.lots {
		sells = append(sells, l.Class)
	}
	exchange := n.net.Trade(p.Config.Region, sells, p.Genesis.AuditSlots > 0)
	n.replies = replies.New(replies.Config{
		Host: p.Host, Network: n.tag, Way: quotes{n}.way, Take: quotes{n}.take,
		Log: p.Log,
	})
	policy, limits, err := p.Config.Egress.Policy()
	if err != nil {
		return err
	}
	n.networks = execnet.New(execnet.Config{
		Host: p.Host, Policy: policy, Limits: limits, MemoryMiB: m.MemoryMiB, Log: p.Log,
	})
	n.given.market = n.net.Exchange
	n.services.Add(service.Loop("replies", n.replies.Run), exchange, n.networks)
	return nil
}
