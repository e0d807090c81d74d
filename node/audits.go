package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/node/device/cuda"
	rules "github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/reputation"
)

const (
	// verifiers is the topic under which peers that judge are found.
	verifiers = "verifier"
)

// newSight is what this peer sees of the network's public facts; nil where nothing is audited, and for light clients whose entry peers do not
// tell blocks.
func (n *Node) newSight() (*audit.Public, error) {
	blocks, _ := n.p.Ledger.(chain.Blocks)
	if n.p.Genesis.AuditSlots == 0 || n.p.Light != nil && blocks == nil {
		return nil, nil
	}
	cfg := audit.PublicConfig{
		Genesis: n.p.Genesis, Blocks: blocks, Roster: n.roster, Slot: func() (market.Slot, error) { return n.slots.Now(time.Now()) }, Log: n.p.Log.With("role", "audit"),
	}
	if n.p.Light != nil {
		cfg.Recent = n.p.Light.Recent
	}
	return audit.NewPublic(cfg)
}

// newAudits makes the part that audits; nil where the network does not.
func (n *Node) newAudits(ctx context.Context) (*audit.Service, error) {
	if n.sight == nil {
		return nil, nil
	}
	shelf, err := audit.OpenShelf(ctx, n.p.Store)
	if err != nil {
		return nil, err
	}
	c := audit.Config{
		Host: n.p.Host, Genesis: n.p.Genesis, Key: n.p.Key, Sight: n.sight, Shelf: shelf, Log: n.p.Log.With("role", "audit"),
		Judged: n.judged, Lie: n.keepLie, Refused: n.refuse,
		Until: func(s market.Slot) time.Duration { return n.slots.Until(time.Now(), s) },
	}
	if n.provider != nil {
		c.Units, c.List, c.Proven, c.Delist = n.idleUnits, n.provider.Shown, n.provider.Show, n.provider.Withdraw
		if c.Anchor, _ = n.p.Ledger.(chain.MemoLedger); c.Anchor != nil {
			c.AnchorPoll = n.p.Escrow.PollEvery
		}
		if n.p.Mask != nil {
			c.Mask = n.mask
		}
	}
	return audit.NewService(c), nil
}

// mask makes a peer for a canary. It knows where others are as this peer does.
func (n *Node) mask() (audit.Mask, error) {
	h, key, err := n.p.Mask()
	if err != nil {
		return audit.Mask{}, err
	}
	return audit.Mask{Host: h, Key: key, Where: func(ctx context.Context, id peer.ID) (peer.AddrInfo, error) {
		if addrs := n.p.Host.Peerstore().Addrs(id); len(addrs) > 0 {
			return peer.AddrInfo{ID: id, Addrs: addrs}, nil
		}
		return n.discovery.Where(ctx, id)
	}}, nil
}

// errNoBonds says that nobody can judge.
var errNoBonds = errors.New("nobody bonds a stake on this network, so that no committee can be drawn: audits need a program whose terms have votes")

// roster is the set that committees of a window are drawn from, by the registrations on chain; a light client takes what its entries tell alike.
func (n *Node) roster(ctx context.Context, w rules.Window) (rules.Roster, error) {
	switch {
	case n.p.Light != nil:
		return n.p.Light.Roster(ctx, w)
	case n.registered == nil:
		return nil, errNoBonds
	}
	all, err := n.registered.Providers(ctx)
	if err != nil {
		return nil, err
	}
	return rules.Mature(registrations(all), w, rules.NewInstants(n.p.Genesis))
}

// registrations are what committees are drawn by.
func registrations(all []program.Provider) []rules.Registration {
	out := make([]rules.Registration, len(all))
	for i, p := range all {
		out[i] = rules.Registration{
			Peer: p.Peer, Owner: p.Owner, Bonded: p.Bonded, Since: market.Slot(max(p.Registered, p.Raised)), Slashed: p.WasSlashed,
		}
	}
	return out
}

// newProofs makes the part that knows what the units of others have shown; nil where they need not.
func (n *Node) newProofs() buyer.Proofs {
	if n.sight == nil {
		return nil
	}
	var against func(context.Context, rules.Record, rules.Roster) error
	if n.refused != nil {
		against = n.refused.Against
	}
	n.shown = audit.NewProofs(audit.ProofsConfig{
		Against: against,
		Domain:  n.p.Genesis.Domain(), WindowSlots: n.p.Genesis.AuditSlots, Sight: n.sight, Ask: audit.Asker{Host: n.p.Host, Tag: n.tag}.Ask,
		Until: func(s market.Slot) time.Duration { return n.slots.Until(time.Now(), s) }, Now: time.Now, Log: n.p.Log.With("role", "buyer"),
	})
	return n.shown
}

// idleUnits are the units that nobody has, with hardware that answers for each; what was not audited for longest comes first.
func (n *Node) idleUnits(ctx context.Context) ([]audit.Unit, func(), error) {
	last := map[market.UnitID]rules.Window{}
	for _, p := range n.audits.Shelf().All() {
		last[p.Unit] = max(last[p.Unit], p.Window)
	}
	idle := n.provider.Idle()
	n.kept.idle(idle)
	slices.SortStableFunc(idle, func(a, b market.Unit) int { return cmp.Compare(last[a.ID], last[b.ID]) })
	var out []audit.Unit
	for _, u := range idle {
		if len(out) == audit.MaxUnits {
			break
		}
		claim := audit.Claim{ID: u.ID, Class: u.Class, Resources: u.Resources}
		asked, err := audit.ByPlan(claim)
		var d device.Device
		if err == nil {
			d, err = n.answers(ctx, u, asked)
		}
		if err != nil {
			n.p.Log.Warn("a unit cannot show what it is", "unit", u.ID, "class", u.Class, "err", err)
			continue
		}
		out = append(out, audit.Unit{Claim: claim, Device: d})
	}
	return out, func() {
		for _, u := range out {
			if err := u.Device.Close(); err != nil {
				n.p.Log.Warn("a device is not closed", "unit", u.ID, "err", err)
			}
		}
	}, nil
}

// judged has what this peer saw of a provider's unit count among what it knows of it.
func (n *Node) judged(provider sign.Key, v rules.Verdict) {
	kinds := map[rules.Outcome]reputation.Kind{rules.Pass: reputation.AuditPassed, rules.Late: reputation.AuditLate, rules.Wrong: reputation.AuditFailed}
	n.reputation.Record(reputation.Fact{ID: v.Answer, Kind: kinds[v.Outcome], Role: reputation.Provider, Subject: provider, At: v.Slot})
}

// answering opens the hardware that answers for a unit.
func answering(ctx context.Context, u market.Unit, asked audit.Asked) (device.Device, error) {
	switch {
	case u.Class.Family() == classCPU:
		return cpu.New(cpu.Config{Model: u.Model, Serial: u.Serial, Memory: asked.Walk.Bytes(), Threads: max(int(u.MilliCPU/1000), 1)}), nil
	case u.Simulated && !rules.Interpreted():
		return nil, fmt.Errorf("%s is simulated, and nothing computes", u.Model)
	}
	return cuda.Open(ctx, cuda.Config{UUID: u.Serial})
}

// Audits is how this peer's units did; an error on a network that does not audit.
func (n *Node) Audits() ([]audit.Past, error) {
	if n.audits == nil {
		return nil, n.noAudits()
	}
	return n.audits.Shelf().All(), nil
}

// Audit has this peer's units show now what they are.
func (n *Node) Audit(ctx context.Context) ([]audit.Past, error) {
	if n.audits == nil {
		return nil, n.noAudits()
	}
	return n.audits.Audit(ctx)
}

// AuditRecord is a record that this peer has, or that another has, and where it is anchored.
func (n *Node) AuditRecord(ctx context.Context, of sign.Key, hash sign.Hash) (audit.Kept, error) {
	switch {
	case n.audits == nil:
		return audit.Kept{}, n.noAudits()
	case of.IsZero() || of == n.p.Key.Key():
		return n.audits.Shelf().Kept(hash)
	}
	return n.audits.Fetch(ctx, of, hash)
}

// noAudits says why nothing is audited here.
func (n *Node) noAudits() error {
	if n.p.Light != nil {
		return &api.Error{Status: 409, Code: "light", Message: "a light client audits nothing: it takes no part in the network"}
	}
	return &api.Error{Status: 409, Code: "no_audits", Message: audit.ErrNoAudits.Error()}
}
