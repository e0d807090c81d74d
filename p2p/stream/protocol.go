// Package stream is typed request and response over direct libp2p streams. It has four shapes:
//
//	Protocol   one request, one answer
//	Feed       one request, a sequence of items (logs)
//	Transfer   one request, one head and then raw bytes of a stated length (files)
//	Duplex     one request, one answer and then raw bytes both ways (terminals, tunnels)
//
// Every read is bounded before memory is taken for it, every stream has a deadline, and every answer carries a status
// class. Numbers are big-endian:
//
//	request    length u32 ‖ protobuf
//	answer     status u16 ‖ length u32 ‖ protobuf
//	feed       answer* with status ok, then one answer with status end or an error class
//	transfer   answer with status ok, then size u64 ‖ size raw bytes
//	duplex     answer with status ok, then raw bytes; from the caller's side too once it has the answer
//
// The caller keeps its half of the stream open until it has its answer, so the answering side detects the caller's
// disconnect immediately and cancels the handler's context.
package stream

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/libp2p/go-libp2p/core/protocol"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/p2p/admit"
)

// Limits that hold for every protocol unless it states its own.
const (
	// DefaultMaxMessage bounds a request or answer if the protocol sets no size: control messages are small.
	DefaultMaxMessage = 64 << 10
	// DefaultDeadline bounds one whole call, dial included.
	DefaultDeadline = 10 * time.Second
	// DefaultStall is how long one item or chunk may make no progress before its stream is given up.
	DefaultStall = 30 * time.Second
	// DefaultConcurrent is how many streams of one protocol a peer answers at a time.
	DefaultConcurrent = 256
	// DefaultPerPeer is how many of those one remote peer may hold.
	DefaultPerPeer = 16

	// readTimeout bounds how long a request takes to come in: it is a few packets.
	readTimeout = 5 * time.Second
	// readers is the number of concurrent reads for each stream that may be answered: reading is cheap.
	readers = 4

	// maxCode and maxReason bound the two strings of a refusal; longer ones are cut.
	maxCode   = 64
	maxReason = 512
	// maxRefusal bounds a refusal frame as read: both strings and their protobuf framing.
	maxRefusal = 1024
	// chunk is the buffer one transfer holds: large enough that a chunk costs few system calls, small enough for many
	// concurrent transfers.
	chunk = 256 << 10
	// directAlloc is the largest announced length for which memory is taken before the bytes come.
	directAlloc = 64 << 10
)

// Status is the class of an answer, which determines the caller's reaction.
type Status uint16

// The status classes.
const (
	// StatusOK: the body is the response.
	StatusOK Status = 100
	// StatusEnd: the feed is complete; the body is empty.
	StatusEnd Status = 110
	// StatusRefused: the request was understood and declined; the same request may succeed later.
	StatusRefused Status = 200
	// StatusMalformed: the request can never work as it is.
	StatusMalformed Status = 400
	// StatusInternal: the answering side failed; the cause is only in its log.
	StatusInternal Status = 500
)

// Protocol is one typed request and response. The zero sizes and deadline mean the defaults above.
type Protocol[Req, Resp proto.Message] struct {
	Name        string        // part of the protocol ID: [a-z0-9-]+
	Version     int           // part of the protocol ID
	MaxRequest  int           // bytes of an encoded request
	MaxResponse int           // bytes of an encoded response
	Deadline    time.Duration // one whole call, on either side
}

// Feed is one typed request answered by a sequence of items. A feed has no overall deadline; one item may
// take Stall to get through.
type Feed[Req, Item proto.Message] struct {
	Name       string
	Version    int
	MaxRequest int
	MaxItem    int
	Stall      time.Duration
}

// Transfer is one typed request answered by a head and raw bytes. It has no overall deadline; one chunk
// may take Stall to get through.
type Transfer[Req, Head proto.Message] struct {
	Name       string
	Version    int
	MaxRequest int
	MaxHead    int
	Stall      time.Duration
}

// Limits bound the load of the answering side. Zero values mean the defaults above. A stream counts once its request is
// read. On a host with standings of its peers, places depend on the standing (see package admit).
type Limits struct {
	Concurrent int // streams answered at a time; the next is refused with CodeBusy
	PerPeer    int // streams of one remote peer, whether read or answered
	// of requests; nil: as many as there are places for. Those over them are refused with CodeBusy
	Rates  *admit.Rates
	Logger *slog.Logger // where failures and panics of the handler go; nil means slog.Default()
}

// ID is the protocol ID on a network: /starling/<name>/<version>/<network>.
func (p Protocol[Req, Resp]) ID(network string) protocol.ID { return id(p.Name, p.Version, network) }

// ID is the protocol ID on a network: /starling/<name>/<version>/<network>.
func (f Feed[Req, Item]) ID(network string) protocol.ID { return id(f.Name, f.Version, network) }

// ID is the protocol ID on a network: /starling/<name>/<version>/<network>.
func (t Transfer[Req, Head]) ID(network string) protocol.ID { return id(t.Name, t.Version, network) }

func id(name string, version int, network string) protocol.ID {
	return protocol.ID(fmt.Sprintf("/starling/%s/%d/%s", name, version, network))
}

// fresh makes an empty message of the type M, which is a pointer to a generated message.
func fresh[M proto.Message]() M {
	var m M
	return m.ProtoReflect().New().Interface().(M)
}

func or[N int | time.Duration](v, fallback N) N {
	if v > 0 {
		return v
	}
	return fallback
}
