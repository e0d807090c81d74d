package server

import (
	"log/slog"
	"slices"

	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/api/server/proofs"
)

// Buyer is the buying loop of a peer.
type Buyer interface {
	Jobs
	Records
	Clusters
	Lifetimes
	Remover
	Programs
	Keys
	proofs.Jobs
}

// Files are a peer's files.
type Files interface {
	Blobs
	Freer
}

// Rooms are the parts of a peer that its local API is about.
type Rooms struct {
	Buyer    Buyer
	Files    Files
	Copies   Copies
	Peer     Peer
	Healthy  Healthy
	Blocks   Blocks
	Market   Market
	Operator Operator
	Shelf    Shelf
	Proofs   proofs.Proofs
	Audits   proofs.Audits
	Rewards  proofs.Rewards
	Metered  Metered
	Log      *slog.Logger
}

// Routes returns the routes of the local API, each bound to its room.
func (r Rooms) Routes() []route.Bound {
	return slices.Concat(
		BindJobs(r.Buyer), BindRecords(r.Buyer), BindClusters(r.Buyer), BindLifetimes(r.Buyer),
		BindRemoval(r.Buyer, r.Files), BindCopies(r.Copies), BindPrograms(r.Buyer, r.Log), BindKeys(r.Buyer),
		BindBlobs(r.Files),
		BindPeer(r.Peer), BindHealth(r.Healthy), BindBlocks(r.Blocks), BindMarket(r.Market),
		BindOperator(r.Operator), BindShelf(r.Shelf), proofs.Bind(r.Proofs), proofs.BindJobs(r.Buyer),
		proofs.BindAudits(r.Audits), proofs.BindRewards(r.Rewards), BindMetrics(r.Metered),
	)
}
