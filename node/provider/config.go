package provider

import (
	"context"
	"log/slog"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/executor/member"
	"github.com/starling-network/starling/node/executor/service"
	"github.com/starling-network/starling/node/provider/pay"
	"github.com/starling-network/starling/node/provider/policy"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/overlay/egress"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/reputation"
)

// Config is the configuration of a Provider. All of it is required, except fields with a stated meaning of nil.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Signer
	Keys    service.Keys // private keys for holds and sealed boxes
	Owner   sign.Key     // is paid

	Lots     []Lot // one for each class
	Policy   Policy
	Region   market.Region
	MinSlots uint64
	MaxSlots uint64

	Store    store.Store
	Blobs    workload.Blobs
	Files    executor.Files
	Runtimes map[string]runtime.Runtime
	Devices  hooks.Devices
	Slots    *slots.Clock
	Dir      string // for executions
	Version  string
	Log      *slog.Logger

	Market     Market
	Reputation Reputation
	// Escrows are how the provider is paid; nil on a free network.
	Escrows *Escrows
	// Filed is called with each receipt that both have signed, under its lease; calls may repeat. It must not wait.
	Filed func(l market.Lease, units []market.UnitID, r verify.Receipt)
	// Coordinate is this peer's place in the network, zero while it is unknown; nil leaves it out of offers.
	Coordinate func() market.Coordinate

	// HoldTTL is the time that units are held for a buyer.
	HoldTTL time.Duration
	// Retain is how long the outputs and logs of an ended execution are kept for its buyer, RetainBytes how much they
	// may take together: the oldest go first.
	Retain      time.Duration
	RetainBytes int64

	// Networks joins executions to the overlays of their clusters; nil: this provider joins no clusters.
	Networks Networks
	// Network is the network access of containers that request it; empty means none.
	Network egress.Mode
}

// Market is the provider's way to buyers.
type Market interface {
	// Offer publishes the signed offers, one for each class with units. Without offers it withdraws the published ones.
	// It is called from one goroutine.
	Offer(ctx context.Context, offers []market.Offer, envelopes [][]byte) error
	// Order returns the next order received over gossip. Several goroutines call it.
	Order(ctx context.Context) (market.Order, error)
	// Reply sends a quote for such an order, with its offer, back over the connections from which the order came. It
	// does not wait.
	Reply(o market.Order, quote, offer []byte) error
}

// Reputation is a peer's knowledge of others; node/reputation implements it.
type Reputation interface {
	// Scores returns the scores of peers in a role, in their order.
	Scores(role reputation.Role, peers ...sign.Key) []reputation.Score
	// Failed records that the buyer of a lease broke it, once or more often.
	Failed(c market.LeaseCore, lost market.Amount)
}

// Work is the executing room as selling sees it. service.Service implements it.
type Work interface {
	// CPUMillis returns the processor time that a lease's executions have used.
	CPUMillis(ctx context.Context, l market.LeaseID) uint64
	// Digest returns the result of a lease's last execution; zero if there is none.
	Digest(l market.LeaseID) sign.Hash
	// End lets nothing more begin under a lease, stops its programs with a grace, and returns when none runs.
	End(ctx context.Context, l market.LeaseID, grace time.Duration) error
	// Terms returns the job and the guardians of a lease that has executions. ok is false if it has none.
	Terms(l market.LeaseID) (job, guardians sign.Hash, ok bool)
	// HandTo lets a peer command the executions of a lease under a supervision epoch.
	HandTo(ctx context.Context, l market.LeaseID, to peer.ID, epoch uint64) error
	// Joins returns why a program of a runtime cannot be a member of a cluster, for its buyer; nil if it can.
	Joins(ctx context.Context, rt runtime.Runtime) error
}

// The types of the operator's rules and of networks, for the composing root.
type (
	// Escrows is the configuration of a provider that is paid from escrows.
	Escrows = pay.Escrows
	// Policy is the operator's permissions.
	Policy = policy.Policy
	// Clusters is the operator's permissions for clusters.
	Clusters = policy.Clusters
	// Lot is the inventory of one class.
	Lot = policy.Lot
	// Networks joins executions to networks.
	Networks = member.Networks
	// Joining is one execution that is to have a network.
	Joining = member.Joining
	// Network is one membership.
	Network = member.Network
	// Peer is another member.
	Peer = member.Peer
	// Link is the path to another member.
	Link = member.Link
)

// ParseHours reads the hours of a policy.
var ParseHours = policy.ParseHours
