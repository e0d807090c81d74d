// Package auditing is the room of a full peer's audits: its idle units are audited by committees of other peers, and
// it judges others when it is drawn. Package audit has the protocol and its parts. This package connects them to the
// seller's units, the chain, and the rooms that learn of results.
package auditing

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/node/device/cache"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	rules "github.com/starling-network/starling/verify/audit"
)

// Seller is the units of a peer that sells.
type Seller interface {
	// Idle returns the units that are not leased.
	Idle() []market.Unit
	// Show has the offers prove the units that have a record.
	Show(record func(market.Unit) (sign.Hash, bool))
	// Withdraw stops the sale of units, for the reasons given.
	Withdraw(map[market.UnitID]string)
}

// Locator finds the addresses of peers.
type Locator interface {
	Where(ctx context.Context, id peer.ID) (peer.AddrInfo, error)
}

// Config is the configuration of a Room.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Private
	Store   store.Store
	Ledger  chain.Ledger
	// AnchorPoll is the polling interval for the roots of this peer's records on chain.
	AnchorPoll time.Duration
	Sight      *sight.Public
	Slots      *slots.Clock
	Results    audit.Results
	// Fetch requests a proof from a peer by its hash.
	Fetch audit.Fetcher
	Where Locator
	// Seller is optional; if nil, the peer only judges others.
	Seller Seller
	// Cache has the devices of idle units.
	Cache *cache.Cache
	// Hardware is optional; if nil, the hardware of this machine answers for its units.
	Hardware Hardware
	// Mask is optional; if nil, no canaries are planted. It makes a host with a new key, by which others do not know
	// the peer.
	Mask func() (*p2p.Host, sign.Private, error)
	Log  *slog.Logger
}

// Room is the service of a peer's audits.
type Room struct {
	cfg    Config
	audits *audit.Service
	judged [rules.Wrong + 1]atomic.Uint64 // verdicts of this peer, by outcome
}

// New makes the room.
func New(ctx context.Context, cfg Config) (*Room, error) {
	kept, err := audit.OpenShelf(ctx, cfg.Store, cfg.Log)
	if err != nil {
		return nil, err
	}
	if cfg.Hardware == nil {
		cfg.Hardware = own
	}
	r := &Room{cfg: cfg}
	c := audit.Config{
		Host: cfg.Host, Genesis: cfg.Genesis, Key: cfg.Key, Sight: cfg.Sight, Shelf: kept, Log: cfg.Log,
		Results: counted{cfg.Results, r}, Fetch: cfg.Fetch,
		Until: func(s market.Slot) time.Duration { return cfg.Slots.Until(time.Now(), s) },
	}
	if s := cfg.Seller; s != nil {
		c.Seller = idle{s, r}
		if c.Anchor, _ = cfg.Ledger.(chain.MemoLedger); c.Anchor != nil {
			c.AnchorPoll = cfg.AnchorPoll
		}
		if cfg.Mask != nil {
			c.Mask = r.mask
		}
	}
	r.audits = audit.NewService(c)
	return r, nil
}

// Name implements service.Service.
func (*Room) Name() string { return "audits" }

// Run audits and judges until ctx ends.
func (r *Room) Run(ctx context.Context) error {
	defer r.cfg.Cache.Close()
	return r.audits.Run(ctx)
}

// Service returns the audits themselves.
func (r *Room) Service() *audit.Service { return r.audits }

// mask makes a peer for a canary, with the addresses of other peers that this peer has.
func (r *Room) mask() (audit.Mask, error) {
	h, key, err := r.cfg.Mask()
	if err != nil {
		return audit.Mask{}, err
	}
	return audit.Mask{Host: h, Key: key, Where: func(ctx context.Context, id peer.ID) (peer.AddrInfo, error) {
		if addrs := r.cfg.Host.Peerstore().Addrs(id); len(addrs) > 0 {
			return peer.AddrInfo{ID: id, Addrs: addrs}, nil
		}
		return r.cfg.Where.Where(ctx, id)
	}}, nil
}

// Audits returns the audits of this peer's units.
func (r *Room) Audits() ([]audit.Past, error) { return r.audits.Shelf().State().All(), nil }

// Audit audits this peer's units now.
func (r *Room) Audit(ctx context.Context) ([]audit.Past, error) { return r.audits.Audit(ctx) }

// Passed fetches the record of another peer's audit and checks all of it except that its anchor is on the chain.
func (r *Room) Passed(ctx context.Context, of sign.Key, record sign.Hash) (rules.Record, chain.Inclusion, error) {
	return r.audits.Passed(ctx, of, record)
}

// None is the audits of a peer without any, with the reason.
type None struct{ Why error }

// Unaudited is the reason on a network without audits.
func Unaudited() error {
	return &api.Error{Status: 409, Code: "no_audits", Message: sight.ErrNoAudits.Error()}
}

// Audits returns the reason.
func (n None) Audits() ([]audit.Past, error) { return nil, n.Why }

// Audit returns the reason.
func (n None) Audit(context.Context) ([]audit.Past, error) { return nil, n.Why }
