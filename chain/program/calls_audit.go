package program

import (
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// Statement is a sort of statement of audits (verify/audit).
type Statement uint8

// The statements.
const (
	StatementAnswer  Statement = 1
	StatementShown   Statement = 2
	StatementVerdict Statement = 3
)

// Form is the tag that it is signed under and the length of its layout; "" and 0 for one that is unknown.
func (s Statement) Form() (tag sign.Tag, size int) {
	switch s {
	case StatementAnswer:
		return sign.TagAnswer, audit.AnswerSize
	case StatementShown:
		return sign.TagShown, audit.ShownSize
	case StatementVerdict:
		return sign.TagVerdict, audit.VerdictSize
	}
	return "", 0
}

// State writes down a statement of an audit that somebody signed: SignedStatement stands in the same transaction.
type State struct {
	Reporter sign.Key // pays, and gets the rent back
	Network  sign.Key
	Stated   sign.Key // StatedAddress

	Ed   uint8 // number of the precompile's instruction in the transaction
	What Statement
}

// Instruction implements Call.
func (c State) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagState, c.Ed, uint8(c.What)}, Accounts: []Meta{
		pays(c.Reporter), reads(c.Network), writes(c.Stated), reads(InstructionsSysvar), reads(SystemProgram)}}
}

// SignedStatement is the signature instruction that State needs beside it, for a statement's layout.
func SignedStatement(d sign.Domain, what Statement, layout []byte, by sign.Key, sig sign.Signature) Signed {
	tag, _ := what.Form()
	return Signed{Keys: []sign.Key{by}, Signatures: []sign.Signature{sig}, Message: d.Preimage(tag, layout)}
}

// CloseStated ends a statement's account; the rent goes back.
type CloseStated struct {
	Reporter sign.Key
	Stated   sign.Key
}

// Instruction implements Call.
func (c CloseStated) Instruction(program sign.Key) Instruction {
	return Instruction{Program: program, Data: data{tagCloseStated},
		Accounts: []Meta{pays(c.Reporter), writes(c.Stated)}}
}

// SlashAudit takes a provider's whole stake, also the unbonding part, for a lie of an audit (verify/audit, Lie).
type SlashAudit struct {
	Network  sign.Key
	Provider sign.Key // the liar: signer of the openings, the answer or the verdict
	Vault    sign.Key
	Mint     sign.Key
	A        sign.Key // the statement; of two answers the lower as bytes
	B        sign.Key // the other answer; zero where there is none
	Reporter sign.Key // TokenAccount of the statements' reporter

	Kind audit.Kind
	// Of a false opening or pass:
	Value  uint8  // which of the opening's values is wrong
	Index  uint16 // of the opening
	Count  uint16 // of all openings
	Answer audit.Answer
	Opened challenge.Opening
	Path   merkle.Proof
}

// SlashAuditUnits is the compute limit that the call needs at most: one entry of the longest lines is 1,024 blocks of
// generator.
const SlashAuditUnits = 1_200_000

// Instruction implements Call.
func (c SlashAudit) Instruction(program sign.Key) Instruction {
	d, b := data{tagSlashAudit, uint8(c.Kind)}, program
	if c.Kind == audit.TwoAnswers {
		b = c.B
	} else {
		answer := c.Answer.Marshal()
		d = d.u8(c.Value).u16(c.Index).u16(c.Count).bytes(answer[:]...).bytes(audit.OpeningLeaf(c.Opened)...).
			bytes(c.Path.Marshal()...)
	}
	return Instruction{Program: program, Data: d, Accounts: []Meta{
		writes(c.Network), writes(c.Provider), writes(c.Vault), writes(c.Mint), reads(c.A), reads(b),
		writes(c.Reporter), reads(TokenProgram)}}
}

// Stated is a statement of an audit with its signature checked by the program.
type Stated struct {
	Bump     uint8
	What     Statement
	Network  sign.Key
	Reporter sign.Key // its reporter, which paid the rent
	Signer   sign.Key
	Slot     uint64 // in which it was shown
	Layout   []byte // an audit.Answer, Shown or Verdict
}

const statedHead = 112

// StatedSize is the length of a statement's account.
func StatedSize(what Statement) int {
	_, size := what.Form()
	return statedHead + size
}

// Marshal returns the account's bytes (PROTOCOL.md).
func (s Stated) Marshal() []byte {
	return head(kindStated, s.Bump, uint8(s.What), 0).key(s.Network).key(s.Reporter).key(s.Signer).u64(s.Slot).
		bytes(s.Layout...)
}

// UnmarshalStated reads a statement's account. ErrAccount. Whether the layout is lawful the program has seen.
func UnmarshalStated(b []byte) (Stated, error) {
	r := &reader{b: b}
	bump, what, more := r.head(kindStated)
	s := Stated{Bump: bump, What: Statement(what), Network: r.key(), Reporter: r.key(), Signer: r.key(), Slot: r.u64()}
	_, size := s.What.Form()
	layout := r.bytes(size)
	if !r.done() || more != 0 || size == 0 {
		return Stated{}, notOne("statement", b)
	}
	s.Layout = append([]byte{}, layout...)
	return s, nil
}

// StatedSeeds are made of a network, the reporter of a statement, and the statement.
func StatedSeeds(network, reporter sign.Key, what Statement, signer sign.Key, layout []byte) [][]byte {
	h := sign.Sum([]byte("starling/stated/v1"), []byte{uint8(what)}, signer[:], layout)
	return [][]byte{[]byte("stated"), network[:], reporter[:], h[:]}
}

// StatedAddress is the account of a statement that a reporter showed.
func StatedAddress(program, network, reporter sign.Key, what Statement, signer sign.Key, layout []byte) sign.Key {
	return at(program, StatedSeeds(network, reporter, what, signer, layout)...)
}
