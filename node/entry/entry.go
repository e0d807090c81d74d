// Package entry is a full peer's service for light clients, which are not part of the network: it reports its network,
// finds offers, gossips the clients' orders, and forwards calls to the chain. Circuits to other peers are provided by
// p2p/relay.
//
//	stream          request                           reply
//	hello           empty                             genesis, slot, other entries
//	entry-find      a class and regions               offers as their providers signed them
//	entry-publish   an order signed by the client     number of neighbours that received it; its quotes
//	                                                  come over the client's own connection
//	entry-rpc       one JSON-RPC call                 the chain's answer
//	entry-roster    a window of audits                the roster of its committees
//	entry-recent    a window of audits                the last two windows up to it that had one
//
// hello uses the network name p2p.AnyNetwork: its caller does not know the network yet. All other streams use the
// network's own.
//
// An entry is a relay, not an authority. Its answers are signed by others (offers), compared with the client's pin
// (genesis), or compared with a second entry's (slot, chain, roster, audits). It cannot alter orders or read circuits.
// If it does not answer, the client uses another entry. PROTOCOL.md has the rules.
package entry

import (
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/entry/entrypb"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
)

// Limits of messages.
const (
	// MaxOffers is how many offers one answer has at the most.
	MaxOffers = 64
	// MaxOthers is how many other entries one answer names.
	MaxOthers = 16
	// maxOtherAddrs is how many addresses of one are given.
	maxOtherAddrs = 4
	// maxAddrLen bounds one of them in text, bytes.
	maxAddrLen = 256
	// maxGenesis bounds the genesis, bytes; market.ParseGenesis reads no more either.
	maxGenesis = 4096
	// MaxCall bounds one call to the chain: the accounts of a full transaction, or the transaction itself.
	MaxCall = 16 << 10
	// MaxAnswer bounds its answer.
	MaxAnswer = 256 << 10

	maxHello  = 64 << 10
	maxFind   = MaxOffers * (market.MaxOfferPayload + 512)
	maxOrder  = market.MaxOrderPayload + 512 // with its envelope
	maxAsking = 1 << 10
	maxRoster = audit.MaxRoster*audit.MemberSize + 16
)

// Deadlines.
const (
	quick       = 5 * time.Second
	rpcDeadline = 15 * time.Second
)

var hello = stream.Protocol[*entrypb.HelloRequest, *entrypb.HelloReply]{
	Name: "hello", Version: 1, MaxRequest: 64, MaxResponse: maxHello, Deadline: quick,
}

var find = stream.Protocol[*entrypb.FindRequest, *entrypb.FindReply]{
	Name: "entry-find", Version: 1, MaxRequest: maxAsking, MaxResponse: maxFind, Deadline: quick,
}

var publish = stream.Protocol[*entrypb.PublishRequest, *entrypb.PublishReply]{
	Name: "entry-publish", Version: 1, MaxRequest: maxOrder + 16, MaxResponse: 64, Deadline: quick,
}

var rpc = stream.Protocol[*entrypb.RPCRequest, *entrypb.RPCReply]{
	Name: "entry-rpc", Version: 1, MaxRequest: MaxCall + 16, MaxResponse: MaxAnswer + 16, Deadline: rpcDeadline,
}

var recent = stream.Protocol[*entrypb.RecentRequest, *entrypb.RecentReply]{
	Name: "entry-recent", Version: 1, MaxRequest: 64, MaxResponse: 64, Deadline: rpcDeadline,
}

var roster = stream.Protocol[*entrypb.RosterRequest, *entrypb.RosterReply]{
	Name: "entry-roster", Version: 1, MaxRequest: 64, MaxResponse: maxRoster, Deadline: rpcDeadline,
}

// FindID is the protocol by which peers that serve clients know each other.
func FindID(network string) string { return string(find.ID(network)) }

// Hello is an entry's description of itself and its network.
type Hello struct {
	Genesis market.Genesis
	Slot    market.Slot     // 0: it has not seen the chain
	ChainUp bool            // the chain answered the last request
	RPC     bool            // it passes calls to the chain on
	Others  []peer.AddrInfo // other known entries
	Peers   int             // about how many the network has; 0: it does not know
}
