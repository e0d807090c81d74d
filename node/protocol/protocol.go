// Package protocol names the direct streams between peers: what is asked over
// each, how large a message may be and how long an answer may take. Buyer and
// provider share it, so that the two ends cannot drift apart.
//
//	stream   from      to        asks                           answers
//	ask      buyer     provider  an order                       a quote, or why not
//	quote    provider  buyer     a quote for a gossiped order   nothing
//	lease    buyer     provider  reserve, sign, activate,       the hold, the signature,
//	                             release                        done
//	exec     buyer     provider  start, stop, status            the execution
//	watch    buyer     provider  follow an execution            its states and its log
//	meter    provider  buyer     co-sign a receipt              signature and next voucher
//	blob     any       any       a file by digest               the file (p2p/blob)
package protocol

import (
	"time"

	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
)

// Limits of the streams. An order or quote fits gossip's 4 KiB message; a lease
// request carries an order, a core, a key set and a voucher; a workload carries
// its arguments, environment and the digests of its inputs.
const (
	MaxOrder     = 4 << 10
	MaxLease     = 16 << 10
	MaxWorkload  = 256 << 10
	MaxMeter     = 8 << 10
	MaxWatchItem = 72 << 10

	// MaxLogChunk is the most log bytes in one watch item.
	MaxLogChunk = 64 << 10

	// QuickAnswer is the deadline of what a peer answers from memory or after
	// one journal write.
	QuickAnswer = 5 * time.Second
)

// Ask asks a provider for a quote.
var Ask = stream.Protocol[*marketpb.AskRequest, *marketpb.AskReply]{
	Name: "ask", Version: 1, MaxRequest: MaxOrder, MaxResponse: MaxOrder, Deadline: QuickAnswer,
}

// Quote hands a buyer the quote for an order that was gossiped.
var Quote = stream.Protocol[*marketpb.QuoteRequest, *marketpb.QuoteReply]{
	Name: "quote", Version: 1, MaxRequest: MaxOrder, MaxResponse: MaxOrder, Deadline: QuickAnswer,
}

// Lease reserves units, signs a lease over them, activates and releases it.
var Lease = stream.Protocol[*marketpb.LeaseRequest, *marketpb.LeaseReply]{
	Name: "lease", Version: 1, MaxRequest: MaxLease, MaxResponse: MaxLease, Deadline: QuickAnswer,
}

// Exec starts, stops and describes executions under a lease.
var Exec = stream.Protocol[*nodepb.ExecRequest, *nodepb.ExecReply]{
	Name: "exec", Version: 1, MaxRequest: MaxWorkload, MaxResponse: MaxLease, Deadline: QuickAnswer,
}

// Meter has a receipt co-signed and brings the next voucher.
var Meter = stream.Protocol[*nodepb.MeterRequest, *nodepb.MeterReply]{
	Name: "meter", Version: 1, MaxRequest: MaxMeter, MaxResponse: MaxMeter, Deadline: QuickAnswer,
}

// Watch follows one execution until it ended.
var Watch = stream.Feed[*nodepb.WatchRequest, *nodepb.WatchItem]{
	Name: "watch", Version: 1, MaxRequest: MaxOrder, MaxItem: MaxWatchItem,
}
