package transaction

import (
	"fmt"

	solanago "github.com/gagliardetto/solana-go"

	"github.com/starling-network/starling/chain"
)

// ParseSigned parses the transaction with the first signature id, and checks all its signatures.
func ParseSigned(raw []byte, id solanago.Signature) (*solanago.Transaction, error) {
	tx, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	if tx.Signatures[0] != id || tx.VerifySignatures() != nil {
		return nil, fmt.Errorf("signatures do not hold: %w", chain.ErrMalformed)
	}
	return tx, nil
}

// Parse reads a wire form of at most chain.MaxRaw bytes. The library indexes before it checks, hence the
// recover.
func Parse(raw []byte) (tx *solanago.Transaction, err error) {
	defer func() {
		if recover() != nil {
			tx, err = nil, fmt.Errorf("transaction of %d bytes: %w", len(raw), chain.ErrMalformed)
		}
	}()
	if len(raw) > chain.MaxRaw {
		return nil, fmt.Errorf("transaction of %d bytes: %w", len(raw), chain.ErrMalformed)
	}
	tx, err = solanago.TransactionFromBytes(raw)
	if err != nil || len(tx.Signatures) == 0 || len(tx.Signatures) != int(tx.Message.Header.NumRequiredSignatures) ||
		len(tx.Message.AccountKeys) < len(tx.Signatures) {
		return nil, fmt.Errorf("transaction of %d bytes: %w", len(raw), chain.ErrMalformed)
	}
	return tx, nil
}
