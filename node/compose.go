package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/execnet"
	"github.com/starling-network/starling/node/files"
	"github.com/starling-network/starling/node/inventory"
	"github.com/starling-network/starling/node/network"
	"github.com/starling-network/starling/node/onchain"
	"github.com/starling-network/starling/node/replies"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify"
)

// roomsOf returns the list that makes a peer, in order of dependence. Each entry adds its services.
func roomsOf(n *Node) []func(context.Context) error {
	list := []func(context.Context) error{n.ground}
	if n.p.Light != nil {
		return append(list, n.light, n.open)
	}
	c, audited, token := n.p.Config, n.p.Genesis.AuditSlots > 0, n.p.Program != nil
	list = append(list, n.meet)
	if audited {
		list = append(list, n.hear)
	}
	list = append(list, n.trade)
	if c.Provide.Enabled {
		list = append(list, n.sell)
	}
	if audited {
		list = append(list, n.verify)
	}
	if token {
		list = append(list, n.guard)
	}
	list = append(list, n.buy)
	if audited && token {
		list = append(list, n.reward)
	}
	list = append(list, n.anchor)
	if c.Entry.Serve {
		list = append(list, n.serve)
	}
	return append(list, n.open)
}

// ground composes the rooms below the market: chain, host, reputation, proofs and files.
func (n *Node) ground(ctx context.Context) (err error) {
	journal := store.Watch(n.p.Store)
	n.p.Store = journal
	p := n.p
	n.slots = slots.New(p.Ledger, p.Genesis.SlotMillis, p.SlotEvery, p.Log)
	n.services.Add(journal, n.slots, service.Checked(service.Loop("host", p.Host.Run),
		func() *service.Problem { return joined(p.Host) }))
	if p.Program != nil {
		n.network = settle.NewNetwork(p.Genesis, p.Program, p.Store)
		n.chain = onchain.New(onchain.Config{Genesis: p.Genesis, Program: p.Program, Network: n.network, Log: p.Log})
		n.services.Add(n.chain)
	}
	if n.blocks, err = block.Open(ctx, p.Store); err != nil {
		return err
	}
	known := reputation.Config{
		Genesis: p.Genesis, Self: p.Key.Key(), Store: p.Store, Log: p.Log.With("role", "reputation"),
		Slot: func() (market.Slot, error) { return n.slots.Now(time.Now()) },
	}
	if n.chain != nil {
		known.Stakes = n.chain.Stakes
	}
	if n.reputation, err = reputation.Open(ctx, known); err != nil {
		return fmt.Errorf("setting up reputation: %w", err)
	}
	n.services.Add(reputation.NewService(n.reputation, p.Genesis.Decimals))
	n.receipts.add(func(l market.Lease, _ []market.UnitID, r verify.Receipt) { n.reputation.File(l, r) })
	if n.facts, err = n.newFacts(); err != nil {
		return fmt.Errorf("setting up audits: %w", err)
	}
	if n.facts != nil && n.facts.Instants().OneIn > 1 {
		n.services.Add(service.Loop("beacons", n.facts.Follow))
	}
	if err = n.openProofs(ctx); err != nil {
		return err
	}
	web, err := p.Config.Inputs.Reader()
	if err != nil {
		return err
	}
	n.files = files.New(files.Config{Host: p.Host, Network: n.tag, Blobs: p.Blobs, Web: web, Log: p.Log})
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
	cfg := network.Config{
		Host: p.Host, Genesis: p.Genesis, Key: p.Key.Key(), Store: p.Store, Values: n.proofs.Values(), Log: p.Log,
	}
	if n.chain != nil {
		cfg.Registered = n.chain.Staked()
		n.services.Add(n.chain.Rules())
	}
	if n.net, err = network.Open(ctx, cfg); err != nil {
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
	n.services.Add(service.Loop("replies", n.replies.Run), exchange, n.networks)
	return nil
}
