package program

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market/sign"
)

// ErrAccount: the bytes are no account of the kind that was asked for, or not in the one form that the program writes.
var ErrAccount = errors.New("program: not an account of this kind")

// Kinds of accounts: their first byte. The second is the version.
const (
	kindAnchor   = 1
	kindNetwork  = 2
	kindEscrow   = 3
	kindTranche  = 4
	kindProvider = 5
	kindAttested = 6
	kindBallot   = 7
	kindVote     = 8
	kindPayout   = 9
	kindStated   = 10

	accountVersion = 1
	headSize       = 8
)

// head begins every account: kind u8 ‖ version u8 ‖ bump u8 ‖ flags u8 ‖ one more byte ‖ 0 (3).
func head(kind, bump, flags, more uint8) data {
	return data{kind, accountVersion, bump, flags, more, 0, 0, 0}
}

func (r *reader) head(kind uint8) (bump, flags, more uint8) {
	if r.u8() != kind || r.u8() != accountVersion {
		r.failed = true
	}
	bump, flags, more = r.u8(), r.u8(), r.u8()
	r.zeros(3)
	return bump, flags, more
}

func flag(set bool) uint8 {
	if set {
		return 1
	}
	return 0
}

func notOne(what string, b []byte) error {
	return fmt.Errorf("%w: %s of %d bytes", ErrAccount, what, len(b))
}

// Token is a token account of the classic SPL token program, as far as this program asks.
type Token struct {
	Mint, Owner sign.Key
	Amount      uint64
	Plain       bool // initialized, not frozen, nobody but its owner may close it
}

// UnmarshalToken reads a token account that the token program owns. ErrAccount.
func UnmarshalToken(b []byte) (Token, error) {
	if len(b) != TokenSize {
		return Token{}, notOne("token account", b)
	}
	r := &reader{b: b}
	t := Token{Mint: r.key(), Owner: r.key(), Amount: r.u64()}
	r.bytes(4 + 32) // delegate
	state := r.u8()
	r.bytes(4 + 8 + 8) // wrapped SOL, delegated amount
	t.Plain = state == 1 && r.u32() == 0
	if state == 0 {
		return Token{}, notOne("token account", b)
	}
	return t, nil
}
