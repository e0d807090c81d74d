// Package account has the accounts that Starling's program keeps on chain, as Go values: networks, escrows and their
// tranches, providers, anchors, ballots, votes and payouts. Each is parsed from its bytes in the one form that the
// program writes (../PROTOCOL.md, section 2), and marshalled to it. The addresses of accounts are here too (section 1),
// and the arithmetic on their fields that the program and its clients share: rules, votes, rents, the emission.
//
// The package makes no calls and refuses none: chain/program does. The accounts of evidence are beside their calls
// there, because only the program itself reads them.
package account

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/chain/internal/fields"
)

// ErrAccount is returned for bytes that are no account of the requested kind, or not in the form that the program
// writes.
var ErrAccount = errors.New("program: not an account of this kind")

// ErrParams is returned for a network's parameters, or rules, that break a rule of theirs. The program has its own code
// for it.
var ErrParams = errors.New("program: the network's parameters break a rule")

// Kinds of accounts: their first byte. Evidence has 6 and 10.
const (
	kindAnchor   = 1
	kindNetwork  = 2
	kindEscrow   = 3
	kindTranche  = 4
	kindProvider = 5
	kindBallot   = 7
	kindVote     = 8
	kindPayout   = 9
)

// Version is the second byte of every account.
const Version = 1

const headSize = 8

// head begins most accounts: kind u8 ‖ version u8 ‖ bump u8 ‖ flags u8 ‖ one more byte ‖ 0 (3).
func head(kind, bump, flags, more uint8) fields.Data {
	return fields.Data{kind, Version, bump, flags, more, 0, 0, 0}
}

func flag(set bool) uint8 {
	if set {
		return 1
	}
	return 0
}

// reader reads the parts of accounts.
type reader struct{ fields.Reader }

func read(b []byte) *reader { return &reader{fields.Reader{Rest: b}} }

// kind reads the first two bytes.
func (r *reader) kind(want uint8) {
	kind, version := r.U8(), r.U8()
	r.Fail(kind != want || version != Version)
}

func (r *reader) head(kind uint8) (bump, flags, more uint8) {
	r.kind(kind)
	bump, flags, more = r.U8(), r.U8(), r.U8()
	r.Zeros(3)
	return bump, flags, more
}

func notOne(kind string, b []byte) error {
	return fmt.Errorf("%w: %s of %d bytes", ErrAccount, kind, len(b))
}
