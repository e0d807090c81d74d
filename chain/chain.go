// Package chain is a peer's view of a chain, and of the anchors on it. It is pure: it reaches a chain only through the
// interfaces below. Package escrow pays leases; a free network has no chain at all.
package chain

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// TxID names a transaction on its chain. On Solana: the base58 form of its first signature.
type TxID string

// MaxMemo bounds the memo of a transaction in bytes.
const MaxMemo = 256

// MaxRaw bounds a signed transaction in bytes (Solana: one IPv6 packet, 1,232).
const MaxRaw = 1232

// Prepared is a transaction signed but not sent. Sending the same Prepared many times has its effect once.
type Prepared struct {
	ID        TxID
	Raw       []byte      // as the chain takes it
	LastValid uint64      // last block height that may hold it
	Since     market.Slot // no block before this slot can hold it
}

// TxState is how far a transaction has come.
type TxState uint8

// The states of a transaction. Finalized, Failed and Expired are permanent; the others may change either way.
const (
	// Unknown: the chain has not seen it and may still take it.
	Unknown TxState = iota
	// Pending: in a block that is not confirmed yet, or failed in a block that is not final.
	Pending
	// Confirmed: a supermajority voted for its block. It could still be forked away.
	Confirmed
	// Finalized: it took effect and is never undone.
	Finalized
	// Failed: it is in a final block and had no effect but its fee.
	Failed
	// Expired: no block can ever hold it.
	Expired
)

var txStateNames = [...]string{"unknown", "pending", "confirmed", "finalized", "failed", "expired"}

func (s TxState) String() string {
	if int(s) < len(txStateNames) {
		return txStateNames[s]
	}
	return "invalid"
}

// MarshalText implements encoding.TextMarshaler.
func (s TxState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *TxState) UnmarshalText(text []byte) error {
	i := slices.Index(txStateNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%w: state %.32q of a transaction", market.ErrMalformed, text)
	}
	*s = TxState(i)
	return nil
}

// Final reports whether the state can never change.
func (s TxState) Final() bool { return s == Finalized || s == Failed || s == Expired }

// TxStatus is the state of a transaction on chain.
type TxStatus struct {
	State TxState
	Slot  market.Slot // of its block; zero if it is in none
	Err   string      // the reason of its failure; empty if it did not fail
}

// Funds is the money that a payer can spend.
type Funds struct {
	Balance market.Amount // of the owner
	// in the key's own token account, if the key is not the owner: withdrawn for spending, but unspent
	Own       market.Amount
	Spendable market.Amount // all if the key is the owner; else Own, and the part of Balance that is delegated to it
	Lamports  uint64        // of the key, for fees and rent
}

// Tip is how far a chain has come.
type Tip struct {
	Confirmed market.Slot // it may step back by a few
	Final     market.Slot // it never steps back; several endpoints may be a few slots apart
}

// FormatSOL writes lamports in SOL: 1_503_360 is "0.00150336".
func FormatSOL(lamports uint64) string { return market.Decimal(lamports, 9) }

// Ledger is a peer's access to the chain. Implementations: chain/solana, chain/chaintest in memory, and node/slots on a
// free network. All methods may be called concurrently. After an error of errors.Is ErrDown the state of the chain is
// unknown.
type Ledger interface {
	// Slot is the newest confirmed slot. It may step back by a few.
	Slot(ctx context.Context) (market.Slot, error)
	// Tip returns the newest confirmed and the newest final slot, both read at once. Final is at most Confirmed.
	Tip(ctx context.Context) (Tip, error)
	// Balance is the confirmed token balance of a wallet; 0 if the wallet never held the token.
	Balance(ctx context.Context, owner sign.Key) (market.Amount, error)
}

// MemoLedger is a chain that carries memos, seen by one key that signs and pays for them.
type MemoLedger interface {
	Memos
	// SignMemo signs a transaction with only this memo, without sending it. It returns ErrMemo if the memo is invalid,
	// and ErrFees if the key cannot pay the fee.
	SignMemo(ctx context.Context, memo []byte) (Prepared, error)
	// Send submits the transaction to the chain. A nil error does not mean that it landed. Send may be repeated. It
	// returns ErrRejected if an endpoint's simulation failed; the transaction may still land.
	Send(ctx context.Context, tx Prepared) error
	// Status returns the transaction's progress. It returns Expired only if no block can ever hold the transaction, and
	// ErrHistory if the endpoint's history is too short to decide.
	Status(ctx context.Context, tx Prepared) (TxStatus, error)
}

// Memos reads the memo of a final transaction and its slot. ErrNotFound when there is no such transaction or no memo.
type Memos interface {
	Memo(ctx context.Context, id TxID) ([]byte, market.Slot, error)
}

// Block is a block that no fork takes back.
type Block struct {
	Slot market.Slot
	Hash sign.Hash
}

// Blocks is a ledger that returns block hashes, the source of unpredictable draws.
type Blocks interface {
	// Block returns the first final block of slot from or a later one; slots may be empty. It returns ErrNotFound if
	// no such block is final yet.
	Block(ctx context.Context, from market.Slot) (Block, error)
}

// CheckMemo reports a memo that no ledger takes: empty, too long, or not UTF-8. The error is ErrMemo.
func CheckMemo(memo []byte) error {
	if len(memo) == 0 || len(memo) > MaxMemo || !utf8.Valid(memo) {
		return fmt.Errorf("%w: %d bytes, want 1 to %d of UTF-8", ErrMemo, len(memo), MaxMemo)
	}
	return nil
}
