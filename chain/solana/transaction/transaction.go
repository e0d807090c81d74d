// Package transaction builds, signs and parses Solana's transactions as bytes. Only forms that it makes itself are
// parsed for their content: other bytes are chain.ErrMalformed, and never a panic of the client library.
package transaction

import (
	"bytes"
	"fmt"

	bin "github.com/gagliardetto/binary"
	solanago "github.com/gagliardetto/solana-go"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// SignLibrary builds the message, has every signer sign it, and returns the wire form and its id. With lookup
// tables the message is of version 0.
func SignLibrary(
	instructions []solanago.Instruction, tables []svm.Table, blockhash solanago.Hash, payer solanago.PublicKey,
	signers ...sign.Signer,
) (chain.TxID, []byte, error) {
	options := []solanago.TransactionOption{solanago.TransactionPayer(payer)}
	if len(tables) > 0 {
		options = append(options, solanago.TransactionAddressTables(libraryTables(tables)))
	}
	tx, err := solanago.NewTransaction(instructions, blockhash, options...)
	if err != nil {
		return "", nil, fmt.Errorf("building transaction: %w", err)
	}
	message, err := tx.Message.MarshalBinary()
	if err != nil {
		return "", nil, fmt.Errorf("building transaction: %w", err)
	}
	if size := 1 + 64*len(tx.Message.Signers()) + len(message); size > chain.MaxRaw { // before any signature
		return "", nil, fmt.Errorf("%w: transaction of %d bytes, at most %d", chain.ErrPayment, size, chain.MaxRaw)
	}
	for _, key := range tx.Message.Signers() {
		signature, err := signAs(key, message, signers)
		if err != nil {
			return "", nil, err
		}
		tx.Signatures = append(tx.Signatures, solanago.Signature(signature))
	}
	raw, err := tx.MarshalBinary()
	if err != nil {
		return "", nil, fmt.Errorf("building transaction: %w", err)
	}
	return chain.TxID(tx.Signatures[0].String()), raw, nil
}

// Sign builds a transaction, has every signer sign it, and returns its wire form and id. The payer is the
// first signer.
func Sign(
	instructions []svm.Instruction, tables []svm.Table, blockhash sign.Hash, signers ...sign.Signer,
) (chain.TxID, []byte, error) {
	if len(signers) == 0 {
		return "", nil, fmt.Errorf("%w: a transaction without a payer", chain.ErrPayment)
	}
	return SignLibrary(Library(instructions), tables, solanago.Hash(blockhash),
		solanago.PublicKey(signers[0].Key()), signers...)
}

// Library converts instructions to the client library's. Permissions on an account hold for the whole transaction, so
// each place gets all of them: the library sorts accounts before it joins duplicates. An account that signs in one
// place and is written in another would end up as not written.
func Library(instructions []svm.Instruction) []solanago.Instruction {
	joined := map[sign.Key]svm.Meta{}
	for _, in := range instructions {
		for _, m := range in.Accounts {
			j := joined[m.Key]
			joined[m.Key] = svm.Meta{Key: m.Key, Signer: j.Signer || m.Signer, Writable: j.Writable || m.Writable}
		}
	}
	out := make([]solanago.Instruction, len(instructions))
	for i, in := range instructions {
		metas := make(solanago.AccountMetaSlice, len(in.Accounts))
		for j, m := range in.Accounts {
			m = joined[m.Key]
			metas[j] = solanago.NewAccountMeta(solanago.PublicKey(m.Key), m.Writable, m.Signer)
		}
		out[i] = solanago.NewInstruction(solanago.PublicKey(in.Program), metas, in.Data)
	}
	return out
}

// ParseMessage parses the message that a transaction's signatures cover. It returns the payer and the instructions.
// Their accounts have the permissions of the whole transaction. Only the form that Sign makes is accepted; others
// return chain.ErrMalformed.
func ParseMessage(message []byte) (payer sign.Key, in []svm.Instruction, err error) {
	malformed := fmt.Errorf("transaction's message of %d bytes: %w", len(message), chain.ErrMalformed)
	defer func() {
		if recover() != nil { // the library's, on bytes that make no sense
			payer, in, err = sign.Key{}, nil, malformed
		}
	}()
	// a version, which may name lookup tables
	if len(message) == 0 || len(message) > chain.MaxRaw || message[0]&0x80 != 0 {
		return sign.Key{}, nil, malformed
	}
	var m solanago.Message
	if err := m.UnmarshalWithDecoder(bin.NewBinDecoder(message)); err != nil || len(m.AccountKeys) == 0 ||
		m.Header.NumRequiredSignatures == 0 {
		return sign.Key{}, nil, malformed
	}
	if again, err := m.MarshalBinary(); err != nil || !bytes.Equal(again, message) {
		return sign.Key{}, nil, malformed
	}
	signers, accounts := int(m.Header.NumRequiredSignatures), len(m.AccountKeys)
	reads, others := int(m.Header.NumReadonlySignedAccounts), int(m.Header.NumReadonlyUnsignedAccounts)
	if reads >= signers || signers+others > accounts {
		return sign.Key{}, nil, malformed
	}
	for _, c := range m.Instructions {
		if int(c.ProgramIDIndex) >= accounts {
			return sign.Key{}, nil, malformed
		}
		x := svm.Instruction{Program: sign.Key(m.AccountKeys[c.ProgramIDIndex]), Data: c.Data}
		for _, i := range c.Accounts {
			if int(i) >= accounts {
				return sign.Key{}, nil, malformed
			}
			signer := int(i) < signers
			x.Accounts = append(x.Accounts, svm.Meta{Key: sign.Key(m.AccountKeys[i]), Signer: signer,
				Writable: signer && int(i) < signers-reads || !signer && int(i) < accounts-others})
		}
		in = append(in, x)
	}
	return sign.Key(m.AccountKeys[0]), in, nil
}

func libraryTables(tables []svm.Table) map[solanago.PublicKey]solanago.PublicKeySlice {
	out := map[solanago.PublicKey]solanago.PublicKeySlice{}
	for _, t := range tables {
		holds := make(solanago.PublicKeySlice, len(t.Holds))
		for i, k := range t.Holds {
			holds[i] = solanago.PublicKey(k)
		}
		out[solanago.PublicKey(t.Address)] = holds
	}
	return out
}

func signAs(key solanago.PublicKey, message []byte, signers []sign.Signer) (sign.Signature, error) {
	for _, s := range signers {
		if solanago.PublicKey(s.Key()) == key {
			signature, err := s.Sign(message)
			if err != nil {
				return signature, fmt.Errorf("signing as %s: %w", key, err)
			}
			return signature, nil
		}
	}
	return sign.Signature{}, fmt.Errorf("signing: no key for %s", key)
}
