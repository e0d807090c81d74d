package svm

import (
	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/market/sign"
)

// MaxSignatures is the most that one precompile instruction may carry for this program.
const MaxSignatures = 5

const (
	edHead  = 2
	edEntry = 14
	edOwn   = 0xffff // the precompile's own instruction
)

// Signed is one message and its signers, as the Ed25519 precompile checks it. Keys and signatures pair up; the order of
// keys is the order of the key set.
type Signed struct {
	Keys       []sign.Key
	Signatures []sign.Signature
	Message    []byte // the whole preimage
}

// Instruction is the one form that the program accepts, with n keys:
//
//	n u8 ‖ 0 u8 ‖ n × entry[14] ‖ n × key[32] ‖ n × signature[64] ‖ message
//	entry = signature offset u16 ‖ 0xffff ‖ key offset u16 ‖ 0xffff ‖ message offset u16 ‖ message size u16 ‖ 0xffff
//
// Every entry points at the one message. Limits: 1 to MaxSignatures keys, as many signatures.
func (s Signed) Instruction() Instruction {
	n := len(s.Keys)
	keys := edHead + edEntry*n
	signatures := keys + sign.KeySize*n
	message := signatures + sign.SignatureSize*n
	b := fields.Data{byte(n), 0}
	for i := range n {
		b = b.U16(uint16(signatures + sign.SignatureSize*i)).U16(edOwn)
		b = b.U16(uint16(keys + sign.KeySize*i)).U16(edOwn)
		b = b.U16(uint16(message)).U16(uint16(len(s.Message))).U16(edOwn)
	}
	for _, k := range s.Keys {
		b = b.Key(k)
	}
	for i := range n {
		b = append(b, s.Signatures[i][:]...)
	}
	return Instruction{Program: Ed25519Program, Data: append(b, s.Message...)}
}

// ParseSigned reads an instruction of that form. It verifies no signature; ok is false for any other form.
func ParseSigned(in Instruction) (s Signed, ok bool) {
	b := in.Data
	if in.Program != Ed25519Program || len(in.Accounts) != 0 || len(b) < edHead || b[0] < 1 || b[0] > MaxSignatures {
		return Signed{}, false
	}
	n := int(b[0])
	keys := edHead + edEntry*n
	signatures := keys + sign.KeySize*n
	message := signatures + sign.SignatureSize*n
	if len(b) < message || len(b)-message > 0xffff {
		return Signed{}, false
	}
	s = Signed{Keys: make([]sign.Key, n), Signatures: make([]sign.Signature, n), Message: b[message:]}
	for i := range n {
		s.Keys[i] = sign.Key(b[keys+sign.KeySize*i:])
		s.Signatures[i] = sign.Signature(b[signatures+sign.SignatureSize*i:])
	}
	return s, string(s.Instruction().Data) == string(b)
}

// Verified reports whether the precompile would let the transaction pass: as many signatures as keys, all strictly
// good.
func (s Signed) Verified() bool {
	if len(s.Keys) == 0 || len(s.Keys) != len(s.Signatures) {
		return false
	}
	for i, k := range s.Keys {
		if sign.Verify(k, s.Message, s.Signatures[i]) != nil {
			return false
		}
	}
	return true
}
