package audit

import (
	"encoding/binary"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Beacon is the hash of the first final block of a window on the network's chain. It is unpredictable before the block
// exists.
type Beacon struct {
	Slot  market.Slot `json:"slot"`
	Value sign.Hash   `json:"value"`
}

// bytes is the beacon's encoding in hashes.
func (b Beacon) bytes() []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(b.Slot)), b.Value[:]...)
}

// Rules check the public parts of the audits of one network.
type Rules struct {
	domain   sign.Domain
	instants Instants
}

// NewRules makes them of a valid genesis.
func NewRules(g market.Genesis) Rules {
	return Rules{domain: g.Domain(), instants: NewInstants(g)}
}

// Instants are when the network's audits begin.
func (n Rules) Instants() Instants { return n.instants }

// checkSlot verifies that a beacon is of a slot of its window. RuleWindow.
func checkSlot(b Beacon, w Window, slots uint64) error {
	if b.Slot < w.First(slots) || WindowOf(b.Slot, slots) != w {
		return broken(RuleWindow, "the beacon is of slot %d, window %d begins at %d", b.Slot, w, w.First(slots))
	}
	return nil
}

// Check verifies without the chain that the beacon's slot is in the window (RuleWindow). It does not check the block's
// hash.
func (n Rules) Check(w Window, b Beacon) error { return checkSlot(b, w, n.instants.Slots) }

// CheckRules verifies that a record's windows are the network's, that its beacon is of its window and draws an audit
// (RuleWindow), and that it began at the instant (RuleInstant).
func (r Record) CheckRules(n Rules) error {
	if r.WindowSlots != n.instants.Slots {
		return broken(RuleWindow, "windows of %d slots, the network's have %d", r.WindowSlots, n.instants.Slots)
	}
	if err := n.Check(r.Answer.Window, r.Beacon); err != nil {
		return err
	}
	return r.CheckInstant(n.instants, "")
}
