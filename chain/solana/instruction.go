package solana

import (
	"encoding/binary"
	"fmt"

	solanago "github.com/gagliardetto/solana-go"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Instruction numbers of the token program.
const (
	tokenTransferChecked = 12
	tokenApproveChecked  = 13
	tokenMintToChecked   = 14
	tokenInitializeMint2 = 20
)

// amountData is number ‖ amount u64 ‖ decimals u8.
func amountData(number byte, amount market.Amount, decimals uint8) []byte {
	return append(binary.LittleEndian.AppendUint64([]byte{number}, uint64(amount)), decimals)
}

func transferChecked(from, mint, to, authority solanago.PublicKey, amount market.Amount, decimals uint8) solanago.Instruction {
	return solanago.NewInstruction(solanago.TokenProgramID, solanago.AccountMetaSlice{
		solanago.Meta(from).WRITE(), solanago.Meta(mint), solanago.Meta(to).WRITE(), solanago.Meta(authority).SIGNER(),
	}, amountData(tokenTransferChecked, amount, decimals))
}

// openTokenAccount opens the wallet's associated token account, or does nothing when it is there.
func openTokenAccount(payer, account, wallet, mint solanago.PublicKey) solanago.Instruction {
	return solanago.NewInstruction(solanago.SPLAssociatedTokenAccountProgramID, solanago.AccountMetaSlice{
		solanago.Meta(payer).WRITE().SIGNER(), solanago.Meta(account).WRITE(), solanago.Meta(wallet), solanago.Meta(mint),
		solanago.Meta(solanago.SystemProgramID), solanago.Meta(solanago.TokenProgramID),
	}, []byte{1}) // CreateIdempotent
}

// memoInstruction is the memo's bytes and nothing else (the library's builder puts a length before them).
func memoInstruction(text []byte) solanago.Instruction {
	return solanago.NewInstruction(solanago.MemoProgramID, nil, text)
}

// signTransaction builds the message, has every signer sign it, and returns the wire form and its id.
func signTransaction(instructions []solanago.Instruction, blockhash solanago.Hash, payer solanago.PublicKey, signers ...sign.Signer) (chain.TxID, []byte, error) {
	tx, err := solanago.NewTransaction(instructions, blockhash, solanago.TransactionPayer(payer))
	if err != nil {
		return "", nil, fmt.Errorf("building transaction: %w", err)
	}
	message, err := tx.Message.MarshalBinary()
	if err != nil {
		return "", nil, fmt.Errorf("building transaction: %w", err)
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
	if len(raw) > chain.MaxRaw {
		return "", nil, fmt.Errorf("%w: transaction of %d bytes, at most %d", chain.ErrPayment, len(raw), chain.MaxRaw)
	}
	return chain.TxID(tx.Signatures[0].String()), raw, nil
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
