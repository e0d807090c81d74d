package program

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Attest writes down a receipt that provider and buyer signed: SignedReceipt stands in the same transaction.
type Attest struct {
	Reporter sign.Key // pays, and gets the rent back
	Network  sign.Key
	Attested sign.Key // AttestedAddress

	Ed uint8 // number of the precompile's instruction in the transaction
}

// Instruction implements Call.
func (c Attest) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagAttest, c.Ed}, Accounts: []Meta{
		pays(c.Reporter), reads(c.Network), writes(c.Attested), reads(InstructionsSysvar), reads(SystemProgram)}}
}

// SignedReceipt is the signature instruction that Attest needs beside it.
func SignedReceipt(d sign.Domain, r verify.Receipt) Signed {
	core := r.ReceiptCore.Marshal()
	return Signed{
		Keys: []sign.Key{r.Provider, r.Buyer}, Signatures: []sign.Signature{r.ProviderSig, r.BuyerSig},
		Message: d.Preimage(sign.TagReceipt, core[:]),
	}
}

// CloseAttested ends an attested receipt's account; the rent goes back.
type CloseAttested struct {
	Reporter sign.Key
	Attested sign.Key
}

// Instruction implements Call.
func (c CloseAttested) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagCloseAttested},
		Accounts: []Meta{pays(c.Reporter), writes(c.Attested)}}
}

// evidenceConflict is the only kind of evidence so far.
const evidenceConflict = 1

// Slash takes a provider's whole stake, also the unbonding part, for a conflict (verify/PROTOCOL.md, section 6) of two
// attested receipts.
type Slash struct {
	Network  sign.Key
	Provider sign.Key
	Vault    sign.Key
	Mint     sign.Key
	A, B     sign.Key // attested receipts; A is of the lease with the lower id
	VictimA  sign.Key // TokenAccount of A's buyer
	VictimB  sign.Key // of B's
	Reporter sign.Key // TokenAccount of the reporter of both

	Unit     market.UnitID
	InA, InB market.UnitProof
}

// Instruction implements Call.
func (c Slash) Instruction(program sign.Key) Instruction {
	d := data{tagSlash, evidenceConflict}.bytes(c.Unit[:]...).bytes(c.InA.Marshal()...).bytes(c.InB.Marshal()...)
	return Instruction{Program: program, Data: d, Accounts: []Meta{
		writes(c.Network), writes(c.Provider), writes(c.Vault), writes(c.Mint), reads(c.A), reads(c.B),
		writes(c.VictimA), writes(c.VictimB), writes(c.Reporter), reads(TokenProgram)}}
}

// Taken is the division of a slashed stake; the four parts add up to it.
type Taken struct {
	VictimA, VictimB, Reporter, Burned uint64
}

// TakenFor divides a provider's whole stake after two buyers had paid these amounts. At least half burns. Of the rest
// each buyer gets its payment up to half, the reporter at most a quarter of the remainder, and the last rest burns too.
func TakenFor(total, paidA, paidB uint64) Taken {
	rest := total / 2
	s := Taken{VictimA: min(paidA, rest/2), VictimB: min(paidB, rest/2)}
	s.Reporter = min(rest-s.VictimA-s.VictimB, rest/4)
	s.Burned = total - s.VictimA - s.VictimB - s.Reporter
	return s
}

// Anchor writes a batch root of receipts down.
type Anchor struct {
	Authority sign.Key // pays
	Anchor    sign.Key // AnchorAddress

	Root  sign.Hash
	Count uint64 // receipts under it, 1 to MaxAnchored
}

// MaxAnchored is the most receipts under one anchor, MaxProof the longest path that the program follows.
const (
	MaxProof    = 20
	MaxAnchored = 1 << MaxProof
)

// Instruction implements Call.
func (c Anchor) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagAnchor}.hash(c.Root).u64(c.Count), Accounts: []Meta{
		pays(c.Authority), writes(c.Anchor), reads(SystemProgram)}}
}

// ParseAnchor parses such a call, of any signer; ok is false for anything else. A call in a transaction took effect
// only if the transaction landed and did not fail.
func ParseAnchor(program sign.Key, in Instruction) (c Anchor, ok bool) {
	r := &reader{b: in.Data}
	if r.u8() != tagAnchor || in.Program != program || len(in.Accounts) != 3 {
		return Anchor{}, false
	}
	c = Anchor{Authority: in.Accounts[0].Key, Anchor: in.Accounts[1].Key, Root: r.hash(), Count: r.u64()}
	return c, r.done() && c.Anchor == AnchorAddress(program, c.Authority, c.Root)
}

// Prove succeeds if a receipt is under an anchor.
type Prove struct {
	Anchor sign.Key

	Receipt sign.Hash // its signed hash
	Index   uint64
	Path    merkle.Proof
}

// Instruction implements Call.
func (c Prove) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagProve}.hash(c.Receipt).u64(c.Index).bytes(c.Path.Marshal()...),
		Accounts: []Meta{reads(c.Anchor)}}
}

// CloseAnchor ends an anchor; the rent goes back.
type CloseAnchor struct {
	Authority sign.Key
	Anchor    sign.Key
}

// Instruction implements Call.
func (c CloseAnchor) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagCloseAnchor},
		Accounts: []Meta{pays(c.Authority), writes(c.Anchor)}}
}

// DrawPool pays a provider out of the verifiers' pool.
type DrawPool struct {
	Authority   sign.Key
	Network     sign.Key
	Pool        sign.Key
	Mint        sign.Key
	Provider    sign.Key
	Destination sign.Key // TokenAccount of the provider's payout wallet

	Amount uint64
}

// Instruction implements Call.
func (c DrawPool) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagDrawPool}.u64(c.Amount), Accounts: []Meta{
		signs(c.Authority), reads(c.Network), writes(c.Pool), reads(c.Mint), reads(c.Provider), writes(c.Destination),
		reads(TokenProgram)}}
}
