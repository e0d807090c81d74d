// Package protocol names the direct streams between peers: the requests over each, the maximum size of a message and
// the timeout of an answer. Buyer and provider share it, so that the two ends cannot drift apart.
//
//	stream   from      to        request                        answer
//	ask      buyer     provider  an order                       a quote, or a refusal
//	quote    any       any       forward a sealed quote for     nothing
//	                             a gossiped order (node/replies)
//	lease    buyer     provider  reserve, sign, activate,       the hold, the signature,
//	                             release                        done
//	exec     buyer     provider  start, stop, pause, resume,    the execution
//	                             status, the members of its
//	                             cluster
//	watch    buyer     provider  follow an execution            its states and its log
//	live     buyer     provider  a program, a port or files     raw bytes both ways (node/live)
//	                             of a running execution
//	rsh      member    member    a program in the other's rank    its frames (node/live)
//	                             of the same cluster
//	meter    provider  buyer     co-sign a receipt              signature and next voucher
//	guard    owner and guardian  a message of a detached job    a signature, its standing
//	         guardians
//	audit    provider  member    a step of an audit (verify/    a nonce, finally a verdict
//	                             audit)
//	record   any       any       an audit record by its hash,   the record, or the list
//	                             or the list behind an offer
//	anchored any       any       its anchored leases that it    their last receipts, and
//	                             bought, after a mark           audits to request
//	rewards  any       any       the table behind an epoch's    a part of it
//	                             rewards (chain/rewards)
//	probes   any       any       a record of a probe by its     the record, or the hashes
//	                             hash, or which are public
//	measure  buyer     provider  paths to other providers that  round trips, rates
//	                             hold units for it (node/link)
//	link     provider  provider  echoes and bytes of a test     echoes
//	coord    any       any       its place in the network       its coordinate (node/coords)
//	blob     any       any       a file by digest               the file (p2p/blob)
package protocol

import (
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/audit"
)

// Limits of the streams. An order or quote fits gossip's 4 KiB message; a lease
// request carries an order, a core, a key set and a voucher; a workload carries
// its arguments, environment and the digests of its inputs.
const (
	MaxOrder     = 4 << 10
	MaxLease     = 16 << 10
	MaxWorkload  = 256<<10 + cluster.MaxSize
	MaxExecution = MaxLease + cluster.MaxMembers*maxLink
	MaxMeter     = 8 << 10
	MaxWatchItem = 72 << 10
	MaxLive      = 256 << 10
	MaxGuard     = 4 << 20
	MaxAudit     = audit.MaxRecord + 4<<10
	MaxProof     = MaxAudit
	MaxRewards   = MaxRewardsPart + 4<<10
	MaxAnchored  = 32 << 10
	MaxMeasure   = 160 << 10 // 64 targets, each of 8 addresses

	// maxLink is an execution's report on the way to one other member of its cluster.
	maxLink = 64
	// maxCoord is a coordinate and its framing.
	maxCoord = 64

	// MaxQuoteBox is a quote and an offer with their envelopes and framing, sealed.
	MaxQuoteBox = market.MaxQuotePayload + market.MaxOfferPayload + 2*sign.EnvelopeOverhead + 16 + sealed.Overhead
	// maxQuoteFrame is the frame around a box.
	maxQuoteFrame = 64
	// quotePassed is how long a neighbour may take to take a quote over: it only has to put it down.
	quotePassed = 2 * time.Second

	// MaxRewardsPart is the most of a document about rewards that is sent at a time.
	MaxRewardsPart = 256 << 10

	// MaxLogChunk is the most log bytes in one watch item.
	MaxLogChunk = 64 << 10

	// QuickAnswer is the deadline of answers from memory or after one journal write.
	QuickAnswer = 5 * time.Second

	// BusyAnswer is the deadline of a request about an execution: a buyer makes those of all its leases at about the
	// same time.
	BusyAnswer = 10 * time.Second
)

// CodeVoucher is the code with which a provider refuses the first voucher of a lease.
const CodeVoucher = "voucher"

// Ask requests a quote from a provider.
var Ask = stream.Protocol[*marketpb.AskRequest, *marketpb.AskReply]{
	Name: "ask", Version: 1, MaxRequest: MaxOrder, MaxResponse: MaxOrder, Deadline: QuickAnswer,
}

// Quote brings a quote for an order that was gossiped one peer nearer to its buyer.
var Quote = stream.Protocol[*marketpb.QuoteRequest, *marketpb.QuoteReply]{
	Name: "quote", Version: 2,
	MaxRequest: MaxQuoteBox + maxQuoteFrame, MaxResponse: maxQuoteFrame, Deadline: quotePassed,
}

// Lease reserves units, signs a lease over them, activates and releases it.
var Lease = stream.Protocol[*marketpb.LeaseRequest, *marketpb.LeaseReply]{
	Name: "lease", Version: 1, MaxRequest: MaxLease, MaxResponse: MaxLease, Deadline: QuickAnswer,
}

// Exec starts, stops and describes executions under a lease.
var Exec = stream.Protocol[*nodepb.ExecRequest, *nodepb.ExecReply]{
	Name: "exec", Version: 1, MaxRequest: MaxWorkload, MaxResponse: MaxExecution, Deadline: BusyAnswer,
}

// Meter has a receipt co-signed and brings the next voucher.
var Meter = stream.Protocol[*nodepb.MeterRequest, *nodepb.MeterReply]{
	Name: "meter", Version: 1, MaxRequest: MaxMeter, MaxResponse: MaxMeter, Deadline: QuickAnswer,
}

// Guard sends a request to a guardian of a detached job.
var Guard = stream.Protocol[*nodepb.GuardRequest, *nodepb.GuardReply]{
	Name: "guard", Version: 1, MaxRequest: MaxGuard, MaxResponse: MaxGuard, Deadline: QuickAnswer,
}

// Audit sends a step of an audit to a member of its committee.
var Audit = stream.Protocol[*nodepb.AuditRequest, *nodepb.AuditReply]{
	Name: "audit", Version: 1, MaxRequest: MaxAudit, MaxResponse: MaxOrder, Deadline: QuickAnswer,
}

// Proof requests a proof by its hash from a peer.
var Proof = stream.Protocol[*nodepb.ProofRequest, *nodepb.ProofReply]{
	Name: "proof", Version: 1, MaxRequest: MaxOrder, MaxResponse: MaxProof, Deadline: QuickAnswer,
}

// Anchored requests a peer's anchored receipts.
var Anchored = stream.Protocol[*nodepb.AnchoredRequest, *nodepb.AnchoredReply]{
	Name: "anchored", Version: 1, MaxRequest: MaxOrder, MaxResponse: MaxAnchored, Deadline: QuickAnswer,
}

// Rewards requests a part of the table behind an epoch's rewards.
var Rewards = stream.Protocol[*nodepb.RewardsRequest, *nodepb.RewardsReply]{
	Name: "rewards", Version: 1, MaxRequest: MaxOrder, MaxResponse: MaxRewards, Deadline: QuickAnswer,
}

// Watch follows one execution until it ended.
var Watch = stream.Feed[*nodepb.WatchRequest, *nodepb.WatchItem]{
	Name: "watch", Version: 1, MaxRequest: MaxOrder, MaxItem: MaxWatchItem,
}

// Live opens a stream into a running execution. It lives as long as both ends and the execution do.
var Live = stream.Duplex[*nodepb.LiveRequest, *nodepb.LiveReply]{
	Name: "live", Version: 1, MaxRequest: MaxLive, MaxResponse: MaxOrder, Deadline: liveDeadline,
}

// Coord requests a peer's coordinate.
var Coord = stream.Protocol[*nodepb.CoordRequest, *nodepb.CoordReply]{
	Name: "coord", Version: 1, MaxRequest: maxCoord, MaxResponse: maxCoord, Deadline: QuickAnswer,
}

// Measure has a provider measure the paths to others that hold units for the same buyer.
var Measure = stream.Protocol[*nodepb.MeasureRequest, *nodepb.MeasureReply]{
	Name: "measure", Version: 1, MaxRequest: MaxMeasure, MaxResponse: MaxLease, Deadline: QuickAnswer,
}

// Link opens a stream to be measured by. It lasts seconds.
var Link = stream.Duplex[*nodepb.LinkRequest, *nodepb.LinkReply]{
	Name: "link", Version: 1, MaxRequest: MaxOrder, MaxResponse: MaxOrder, Deadline: QuickAnswer, Idle: QuickAnswer,
}

// Rsh attaches a program in an execution for another member of its cluster: a [Live] stream. Its request names the
// lease that the cluster's plan has for the rank, and a program without a terminal.
var Rsh = stream.Duplex[*nodepb.LiveRequest, *nodepb.LiveReply]{
	Name: "rsh", Version: 1, MaxRequest: MaxLive, MaxResponse: MaxOrder, Deadline: liveDeadline,
}

// liveDeadline bounds opening: the provider may have to connect to the program first.
const liveDeadline = 10 * time.Second

// Reasons for a failed start of an execution.
const (
	// ReasonStart is a problem of the provider: another provider may run it.
	ReasonStart = "start"
	// ReasonImage reports that the container image does not exist or differs from its digest.
	ReasonImage = "image"
	// ReasonProgram reports that the image was pulled, but its program cannot be started.
	ReasonProgram = "program"
	// ReasonInput reports that the URL of an input does not have it.
	ReasonInput = "input"
	// ReasonCredentials reports that the image's registry refused the credentials, or requires them.
	ReasonCredentials = "credentials"
)
