package node

import (
	"context"
	"net/http"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/anchored"
	"github.com/starling-network/starling/node/auditing"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/buyer/copies"
	"github.com/starling-network/starling/node/buyer/guardian/wards"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/node/execnet"
	"github.com/starling-network/starling/node/files"
	"github.com/starling-network/starling/node/inventory"
	"github.com/starling-network/starling/node/money"
	"github.com/starling-network/starling/node/network"
	"github.com/starling-network/starling/node/onchain"
	"github.com/starling-network/starling/node/proof/room"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/node/replies"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/selling"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/status"
)

// Rooms are the parts of a peer. A room that its list does not have is nil.
type Rooms struct {
	// Of every peer.
	slots      *slots.Clock
	network    *settle.Network // unused on a free network
	chain      *onchain.Watch  // on a free network of nobody's stake
	money      *money.Money    // nil on a free network
	blocks     *block.List
	reputation *reputation.Book
	facts      *auditing.Facts // nil if nothing is audited
	proofs     *room.Room      // of a light peer disputes of results alone
	files      *files.Files
	replies    *replies.Router
	buyer      *buyer.Buyer
	copies     *copies.Room
	status     *status.Status
	metrics    func() http.Handler

	// Of a full peer; nil for a light one.
	net      *network.Room
	gpus     *inventory.GPUs
	lots     []provider.Lot
	devices  *inventory.Devices
	networks *execnet.Networks

	// Of a full peer that sells, and of networks with audits and stake; else nil.
	provider *provider.Provider
	seller   *selling.Seller
	audits   *auditing.Room
	guardian *wards.Service
}

// given has the services that rooms give to later ones, under the names of the giving rooms. A room that is not in the
// list gives nothing: the later ones take nil, which they accept.
type given struct {
	sold     *provider.Escrows // of pay
	bought   *buyer.Escrows    // of pay
	facts    entry.Audits      // of observe
	market   buyer.Market      // of trade or enter
	carries  func() int64      // of enter: the bytes that a connection carries
	units    auditing.Seller   // of sell
	earner   money.Seller      // of sell
	audits   anchored.Audits   // of verify
	proofs   buyer.Proofs      // of check
	guardian buyer.Guardian    // of guard
}

// Slot returns the chain's slot as this peer sees it; 0 while it is not known.
func (r *Rooms) Slot() market.Slot {
	s, err := r.slots.Now(time.Now())
	if err != nil {
		return 0
	}
	return s
}

// Sync reads the chain's slot at once. A light peer calls it when it is connected.
func (r *Rooms) Sync(ctx context.Context) { _ = r.slots.Sync(ctx) } // errors are logged there

// Buyer returns the buying loop.
func (r *Rooms) Buyer() *buyer.Buyer { return r.buyer }

// Copies returns the copies of jobs' outputs at other peers.
func (r *Rooms) Copies() *copies.Room { return r.copies }

// Money returns the peer's own money; nil on a free network.
func (r *Rooms) Money() *money.Money { return r.money }

// Blocks returns the user's block list.
func (r *Rooms) Blocks() *block.List { return r.blocks }

// Files returns the peer's files.
func (r *Rooms) Files() *files.Files { return r.files }

// Proofs returns the peer's proofs. Those of a light peer are disputes of results.
func (r *Rooms) Proofs() *room.Room { return r.proofs }

// Metrics answers with the metrics of this peer, in the text format of Prometheus. Nothing is measured before the first
// request.
func (r *Rooms) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.metrics().ServeHTTP(w, q) })
}

// Provider returns the selling loop, or nil if nothing is sold.
func (r *Rooms) Provider() *provider.Provider { return r.provider }

// Seller returns the operator's view of the selling loop, or nil if nothing is sold.
func (r *Rooms) Seller() *selling.Seller { return r.seller }

// Status describes the peer and its known peers.
func (r *Rooms) Status() *status.Status { return r.status }

// Audits returns the audits of this peer, or nil if nothing is audited.
func (r *Rooms) Audits() *auditing.Room { return r.audits }

// Facts returns the public facts of audits, or nil if nothing is audited.
func (r *Rooms) Facts() *auditing.Facts { return r.facts }

// Guardian returns the jobs that this peer guards, or nil if it guards none.
func (r *Rooms) Guardian() *wards.Service { return r.guardian }

// Network returns the peer's part in DHT and gossip; nil for a light peer.
func (r *Rooms) Network() *network.Room { return r.net }
