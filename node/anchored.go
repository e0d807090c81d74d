package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify"
	rules "github.com/starling-network/starling/verify/audit"
)

// orderTime is how long after an order was heard it is taken to be in flight.
const orderTime = 3 * time.Second

// openAnchored makes the parts that show what this peer anchored and read what others did.
func (n *Node) openAnchored(ctx context.Context) error {
	log := n.p.Log.With("role", "reputation")
	slot := func() (market.Slot, error) { return n.slots.Now(time.Now()) }
	var err error
	n.shower, err = reputation.OpenShower(ctx, reputation.ShowerConfig{
		Genesis: n.p.Genesis, Self: n.p.Key.Key(), Store: n.p.Store, Slot: slot, Settled: n.settled, Receipts: n.receipts, Anchor: n.anchorIn,
		Busy: n.ordersInFlight, Records: n.anchoredRecords, Log: log,
	})
	if err != nil {
		return err
	}
	c := reputation.ReaderConfig{
		Book: n.reputation, Store: n.p.Store, Ask: reputation.Asker{Host: n.p.Host, Tag: n.tag}.Ask, Anchor: n.anchorIn,
		Peers: n.connected, Busy: n.ordersInFlight, Log: log,
	}
	if n.audits != nil {
		c.Record = n.passed
	}
	n.reader, err = reputation.OpenReader(ctx, c)
	return err
}

// connected are the keys of the peers that this one is connected to.
func (n *Node) connected() (out []sign.Key) {
	for _, id := range n.p.Host.Network().Peers() {
		if k, err := p2p.KeyFromPeerID(id); err == nil {
			out = append(out, sign.Key(k))
		}
	}
	return out
}

// ordersInFlight says that somebody is looking for providers: what can wait does.
func (n *Node) ordersInFlight() bool {
	if time.Since(time.Unix(0, n.orders.latest.Load())) < orderTime {
		return true
	}
	return slices.ContainsFunc(n.buyer.Open(), func(j buyer.Job) bool { return j.State == buyer.Queued || j.State == buyer.Matching })
}

// settled are the jobs of this peer's own that are over and anchored. Those that it detached have a key of their own, whose word is nobody's.
func (n *Node) settled() (out []reputation.Settled) {
	for _, j := range n.buyer.Anchored() {
		out = append(out, reputation.Settled(j))
	}
	return out
}

// receipts are all of a job, in the order of its anchor.
func (n *Node) receipts(ctx context.Context, job string) (out []verify.Receipt, err error) {
	accounts, err := n.buyer.Receipts(ctx, job)
	for _, a := range accounts {
		if !a.Void {
			out = append(out, a.Receipts...)
		}
	}
	return out, err
}

// anchorIn reads what receipts a final transaction anchors.
func (n *Node) anchorIn(ctx context.Context, tx chain.TxID) (chain.Commitment, error) {
	c, ok := n.p.Program.(reputation.ProgramAnchors)
	if !ok {
		return chain.Commitment{}, fmt.Errorf("reading the anchor in transaction %s: %w", tx, chain.ErrDown)
	}
	return reputation.ProgramAnchor(ctx, c, tx)
}

// anchoredRecords are the newest audits of this peer's units that are anchored.
func (n *Node) anchoredRecords() (out []sign.Hash) {
	if n.audits == nil {
		return nil
	}
	past := n.audits.Shelf().All()
	slices.SortStableFunc(past, func(x, y audit.Past) int { return cmp.Compare(y.Window, x.Window) })
	for _, p := range past[:min(len(past), maxShownAudits)] {
		if p.Anchored == "" || p.Record.IsZero() {
			continue
		}
		if _, err := n.audits.Shelf().Record(p.Record); err == nil && len(out) < reputation.MaxRecords { // only the newest of each unit is there
			out = append(out, p.Record)
		}
	}
	return out
}

// maxShownAudits bounds those that are looked through for what others may ask for.
const maxShownAudits = 256

// passed fetches the record of another peer's audit and checks all of it, on chain too.
func (n *Node) passed(ctx context.Context, of sign.Key, record sign.Hash) (reputation.Checked, error) {
	r, in, err := n.audits.Passed(ctx, of, record)
	rule, broken := errors.AsType[*rules.RuleError](err)
	if broken && rule.Rule != rules.RuleCommittee && rule.Rule != rules.RuleTime { // who was to judge, and when, peers may see differently
		return reputation.Checked{}, fmt.Errorf("%w: %w", reputation.ErrRecord, rule)
	}
	if memos, ok := n.p.Ledger.(chain.Memos); ok && err == nil {
		err = in.CheckOn(ctx, memos, record)
	} else if err == nil {
		err = fmt.Errorf("reading the anchor in transaction %s: %w", in.Tx, chain.ErrDown)
	}
	if err != nil {
		return reputation.Checked{}, err
	}
	return reputation.Checked{Provider: of, Answer: r.Answer.Hash(), At: r.Answer.Window.First(n.p.Genesis.AuditSlots), Tx: in.Tx}, nil
}
