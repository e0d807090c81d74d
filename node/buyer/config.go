package buyer

import (
	"context"
	"log/slog"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/admission"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/programs"
	"github.com/starling-network/starling/node/buyer/results"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/secrets"
	"github.com/starling-network/starling/node/buyer/voice"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
)

// Config has the settings and services of a Buyer. All are required.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Signer
	Owner   sign.Key // pays

	Escrows  *Escrows // nil on a free network
	Store    store.Store
	Blobs    programs.Blobs
	Files    Files
	Runtimes admission.Runtimes // for the reduce step
	Slots    run.Clock
	Dir      string
	Log      *slog.Logger

	Market     Market
	Registries admission.Registries

	// Filed receives each receipt that both parties have signed, with its lease. It may receive a receipt again, and
	// must not block.
	Filed func(l market.Lease, units []market.UnitID, r leases.Receipt)

	// Carries is how many bytes a connection to any provider carries before a relay cuts it; 0: no limit is known. Nil
	// where connections differ.
	Carries func() int64

	// Reputation is this peer's record of others.
	Reputation Reputation
	// Proofs has the proven properties of units on offer; nil on a network without audits, and if this peer cannot
	// check them.
	Proofs Proofs

	Boxes secrets.Boxes
	// Blocked reports whether the user excludes a provider, and the reason.
	Blocked func(p sign.Key) (reason string, blocked bool)

	// Guardian is this peer's own guardian service, which is called directly. It is optional; if nil, the peer guards
	// nothing.
	Guardian voice.Local
	Stakes   Stakes // optional; if nil, no provider counts as staked

	Blocks   results.Blocks // whose hashes draw the results to check; optional: if nil, none is checked
	Disputes results.Disputes

	Limits      Limits           // on the spending of all keys together
	PrivateHook bool             // webhooks may be at addresses that are not public
	Weights     exchange.Weights // zero means those of the network
	QuoteWindow time.Duration    // maximum wait for the quotes of an order
	LostAfter   time.Duration    // silence after which a provider counts as lost
	MaxOutput   int64            // bytes of one output
	MaxJobs     int              // jobs at a time, settling ones not counted
	// MaxAsked is the number of known providers that receive an order at once, beside 3 for each lease; zero means 48.
	MaxAsked int
}

// Files has the files that this peer exchanges with others; node/files implements it.
type Files interface {
	// Fetch copies a blob of at most most bytes from a peer into the store.
	Fetch(ctx context.Context, from peer.ID, c cid.Cid, most int64) error
	programs.Files
	// Uploaded reports whether an API key brought a blob.
	Uploaded(key string, c cid.Cid) bool
}

// Market is the market as this peer reaches it.
type Market interface {
	exchange.Network
	// Neighbours returns known peers that may guard jobs, beside the providers, and their addresses.
	Neighbours() []peer.AddrInfo
}

// Stakes has the stakes of peers; node/onchain implements it.
type Stakes interface {
	results.Stakes
	// Stake returns the stake of a peer.
	Stake(ctx context.Context, peer sign.Key) (market.Amount, error)
}

// Reputation has the reputation of other peers; node/reputation implements it.
type Reputation interface {
	exchange.Ratings
	programs.Reputation
}
