package keep

import (
	"time"

	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/verify/audit"
)

// limit bounds the proofs of one kind.
type limit struct {
	all     int
	others  int  // of all, found by others or cheap
	subject int  // of others, about one peer
	rolling bool // the oldest of this peer's own makes room
}

// limits has the kinds that a Store keeps.
var limits = map[proof.Kind]limit{
	proof.KindDoubleSale: {all: 4096, others: 1024, subject: 8},
	proof.KindFraud:      {all: 1024, others: 512, subject: 4}, // the first takes the whole stake
	proof.KindDispute:    {all: 1024, others: 128, subject: 4, rolling: true},
}

// item is a kept proof without its body.
type item struct {
	entry    proof.Entry
	standing admit.Standing
	open     bool
	cheap    bool
}

// cheap reports whether an unstaked key can produce such a proof. Members of committees have a stake.
func cheap(c proof.Content) bool {
	f, ok := c.(proof.Fraud)
	return ok && f.Lie.Kind != audit.FalsePass
}

// ofOthers reports whether the item takes the room of proofs by others.
func (i *item) ofOthers() bool { return !i.entry.Own || i.cheap }

const (
	// pinned is the rank of an item that never makes room.
	pinned = 100
	// fresh is the age below which a proof about a stranger does not make room for another one.
	fresh = 24 * time.Hour
)

// rank orders the items that make room, the lowest first.
func (i *item) rank() int {
	switch {
	case i.entry.State == proof.StateSubmitting || i.open:
		return pinned
	case i.entry.State.Over():
		return 0
	case i.entry.Own && i.cheap && i.standing == admit.Counterparty: // it has a stake: this peer has it taken
		return pinned
	case i.ofOthers():
		return rankOf(i.standing)
	case limits[i.entry.Kind].rolling:
		return 10
	}
	return pinned
}

// rankOf is the rank of a proof by others about a peer of a standing.
func rankOf(s admit.Standing) int { return 1 + int(s) }
