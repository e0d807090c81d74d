package node

import (
	"slices"

	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/api/server"
)

// routes are the routes of the local API, each bound to the part of the peer that it is about.
func (n *Node) routes() []route.Bound {
	return slices.Concat(
		server.BindJobs(n.buyer), server.BindRecords(n.buyer), server.BindClusters(n.buyer),
		server.BindLifetimes(n.buyer), server.BindRemoval(n.buyer, n.files),
		server.BindPrograms(n.buyer, n.p.Log), server.BindKeys(n.buyer), server.BindBlobs(n.files),
		server.BindPeer(described{n.status, n.user.Guards}), server.BindHealth(n.status),
		server.BindBlocks(n.blocks),
		server.BindMarket(traded{n.status, n.user.Leases}), server.BindOperator(n.user.Operator),
		server.BindProofs(n.proofs), server.BindAudits(n.user.Audits), server.BindRewards(n.user.Rewards),
		server.BindMetrics(n),
	)
}
