package program

import (
	"fmt"

	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
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

// Form returns the statement's signing tag and the length of its layout; "" and 0 if its kind is unknown.
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

// State records a signed statement of an audit. SignedStatement must be in the same transaction.
type State struct {
	Reporter sign.Key // pays, and gets the rent back
	Network  sign.Key
	Stated   sign.Key // StatedAddress

	Ed   uint8 // number of the precompile's instruction in the transaction
	What Statement
}

// Instruction implements Call.
func (c State) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagState, c.Ed, uint8(c.What)},
		pays(c.Reporter), reads(c.Network), writes(c.Stated), instructionsSysvar, systemProgram)
}

// SignedStatement is the signature instruction that State needs beside it, for a statement's layout.
func SignedStatement(d sign.Domain, what Statement, layout []byte, by sign.Key, sig sign.Signature) svm.Signed {
	tag, _ := what.Form()
	return svm.Signed{Keys: []sign.Key{by}, Signatures: []sign.Signature{sig}, Message: d.Preimage(tag, layout)}
}

// CloseStated ends a statement's account; the rent goes back.
type CloseStated struct {
	Reporter sign.Key
	Stated   sign.Key
}

// Instruction implements Call.
func (c CloseStated) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagCloseStated}, pays(c.Reporter), writes(c.Stated))
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
func (c SlashAudit) Instruction(program sign.Key) svm.Instruction {
	d, b := data{tagSlashAudit, uint8(c.Kind)}, program
	if c.Kind == audit.TwoAnswers {
		b = c.B
	} else {
		answer := c.Answer.Marshal()
		d = d.U8(c.Value).U16(c.Index).U16(c.Count).Bytes(answer[:]...).Bytes(audit.OpeningLeaf(c.Opened)...).
			Bytes(c.Path.Marshal()...)
	}
	return instruction(program, d,
		writes(c.Network), writes(c.Provider), writes(c.Vault), writes(c.Mint), reads(c.A), reads(b),
		writes(c.Reporter), tokenProgram)
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

const (
	kindStated = 10 // the first byte; account has the other kinds
	statedHead = 112
)

// StatedSize is the length of a statement's account.
func StatedSize(what Statement) int {
	_, size := what.Form()
	return statedHead + size
}

// Marshal returns the account's bytes (PROTOCOL.md).
func (s Stated) Marshal() []byte {
	return data{kindStated, account.Version, s.Bump, uint8(s.What)}.Zeros(4).Key(s.Network).Key(s.Reporter).
		Key(s.Signer).U64(s.Slot).Bytes(s.Layout...)
}

// UnmarshalStated parses a statement's account. The program has checked that the layout is lawful. It returns
// account.ErrAccount.
func UnmarshalStated(b []byte) (Stated, error) {
	r := fields.Reader{Rest: b}
	kind, version := r.U8(), r.U8()
	s := Stated{Bump: r.U8(), What: Statement(r.U8())}
	r.Zeros(4)
	s.Network, s.Reporter, s.Signer, s.Slot = r.Key(), r.Key(), r.Key(), r.U64()
	_, size := s.What.Form()
	layout := r.Take(size)
	if !r.Done() || kind != kindStated || version != account.Version || size == 0 {
		return Stated{}, fmt.Errorf("%w: statement of %d bytes", account.ErrAccount, len(b))
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
	return svm.Address(program, StatedSeeds(network, reporter, what, signer, layout)...)
}
