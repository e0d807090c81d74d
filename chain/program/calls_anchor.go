package program

import (
	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// Anchor writes a batch root of receipts down.
type Anchor struct {
	Authority sign.Key // pays
	Anchor    sign.Key // AnchorAddress

	Root  sign.Hash
	Count uint64 // receipts under it, 1 to MaxAnchored
}

// MaxAnchored is the most receipts under one anchor, and MaxProof the longest path that the program follows.
const (
	MaxProof    = 20
	MaxAnchored = 1 << MaxProof
)

// Instruction implements Call.
func (c Anchor) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagAnchor}.Hash(c.Root).U64(c.Count),
		pays(c.Authority), writes(c.Anchor), systemProgram)
}

// ParseAnchor parses such a call, of any signer; ok is false for anything else. A call in a transaction took effect
// only if the transaction landed and did not fail.
func ParseAnchor(program sign.Key, in svm.Instruction) (c Anchor, ok bool) {
	r := fields.Reader{Rest: in.Data}
	if r.U8() != tagAnchor || in.Program != program || len(in.Accounts) != 3 {
		return Anchor{}, false
	}
	c = Anchor{Authority: in.Accounts[0].Key, Anchor: in.Accounts[1].Key, Root: r.Hash(), Count: r.U64()}
	return c, r.Done() && c.Anchor == account.AnchorAddress(program, c.Authority, c.Root)
}

// Prove succeeds if a receipt is under an anchor.
type Prove struct {
	Anchor sign.Key

	Receipt sign.Hash // its signed hash
	Index   uint64
	Path    merkle.Proof
}

// Instruction implements Call.
func (c Prove) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagProve}.Hash(c.Receipt).U64(c.Index).Bytes(c.Path.Marshal()...), reads(c.Anchor))
}

// CloseAnchor ends an anchor; the rent goes back.
type CloseAnchor struct {
	Authority sign.Key
	Anchor    sign.Key
}

// Instruction implements Call.
func (c CloseAnchor) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagCloseAnchor}, pays(c.Authority), writes(c.Anchor))
}
