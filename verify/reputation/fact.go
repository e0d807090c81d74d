package reputation

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Kind is the kind of a fact.
type Kind uint8

// The kinds. Those from AuditPassed on are about the provider alone: any holder of the record can check it.
const (
	// Kept: the other side signed for work that was done, or was paid for work. Value is the amount.
	Kept Kind = iota + 1
	// Failed: the peer broke a lease of the reader's. Value is the reader's loss. Facts of others of this kind are
	// hearsay and ignored.
	Failed
	// AuditPassed: a committee certified an audit record.
	AuditPassed
	// AuditFailed: a record shows wrong answers.
	AuditFailed
	// AuditLate: the answers came too late, or none did.
	AuditLate
	// SoldTwice: a verify.Conflict.
	SoldTwice
	// Lied: an audit.Lie, by a provider or a member of a committee.
	Lied
)

var kindNames = map[Kind]string{Kept: "kept", Failed: "failed", AuditPassed: "audit passed",
	AuditFailed: "audit failed", AuditLate: "audit late", SoldTwice: "sold twice", Lied: "lied"}

// String is the kind in words.
func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Role is in which of its roles a peer is scored.
type Role uint8

// The roles.
const (
	Provider Role = iota
	Buyer
)

// String is the role in one word.
func (r Role) String() string {
	if r == Buyer {
		return "buyer"
	}
	return "provider"
}

// MarshalText is String.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (r *Role) UnmarshalText(text []byte) error {
	switch string(text) {
	case "provider":
		*r = Provider
	case "buyer":
		*r = Buyer
	default:
		return fmt.Errorf("%w: role %.20q", market.ErrMalformed, text)
	}
	return nil
}

// Fact is one observation about a peer. Of each kind, one fact about an ID and a subject in a role counts: the one with
// the greater value, then the later.
type Fact struct {
	ID      sign.Hash // its subject: a lease's id, the hash of a record or a conflict
	Kind    Kind
	Role    Role          // in which Subject did it
	Subject sign.Key      // whom it is about
	Rater   sign.Key      // the other side of the lease; zero for proofs
	Value   market.Amount // base units
	At      market.Slot
}

// FactSize is the size of a fact's layout, in bytes.
const FactSize = 8 + sign.HashSize + 2*sign.KeySize + 16

// Marshal returns the layout, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  kind
//	     2     1  role
//	     3     5  reserved: 0
//	     8    32  id
//	    40    32  subject
//	    72    32  rater
//	   104     8  value
//	   112     8  at
func (f Fact) Marshal() []byte {
	b := append(make([]byte, 0, FactSize), factVersion, byte(f.Kind), byte(f.Role), 0, 0, 0, 0, 0)
	b = append(b, f.ID[:]...)
	b = append(b, f.Subject[:]...)
	b = append(b, f.Rater[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(f.Value))
	return binary.LittleEndian.AppendUint64(b, uint64(f.At))
}

const factVersion = 1

// UnmarshalFact decodes the layout without trailing bytes. It returns market.ErrMalformed otherwise, and for an
// impossible fact.
func UnmarshalFact(b []byte) (Fact, error) {
	if len(b) != FactSize || b[0] != factVersion || !bytes.Equal(b[3:8], make([]byte, 5)) {
		return Fact{}, malformed("%d bytes, want %d of version %d", len(b), FactSize, factVersion)
	}
	le := binary.LittleEndian
	f := Fact{Kind: Kind(b[1]), Role: Role(b[2]), ID: sign.Hash(b[8:40]), Subject: sign.Key(b[40:72]),
		Rater: sign.Key(b[72:104]), Value: market.Amount(le.Uint64(b[104:])), At: market.Slot(le.Uint64(b[112:]))}
	return f, f.check()
}

// check returns an error if the fact is impossible.
func (f Fact) check() error {
	proof := f.Kind >= AuditPassed
	switch {
	case f.Kind < Kept || f.Kind > Lied:
		return malformed("%s", f.Kind)
	case f.Role != Provider && f.Role != Buyer:
		return malformed("role %d", f.Role)
	case f.Subject.IsZero() || f.Rater == f.Subject:
		return malformed("about %s by %s", f.Subject.Short(), f.Rater.Short())
	case proof && (f.Role != Provider || !f.Rater.IsZero()):
		return malformed("%s: must be about a provider, without a rater", f.Kind)
	case !proof && f.Rater.IsZero():
		return malformed("%s: no rater", f.Kind)
	}
	return nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: fact: %s", market.ErrMalformed, fmt.Sprintf(format, args...))
}

// compareFact puts facts of which one counts beside each other, that one first.
func compareFact(x, y Fact) int {
	if by := sameFact(x, y); by != 0 {
		return by
	}
	return cmp.Or(cmp.Compare(y.Value, x.Value), cmp.Compare(y.At, x.At), bytes.Compare(x.Rater[:], y.Rater[:]))
}

// sameFact is 0 for two of which one counts.
func sameFact(x, y Fact) int {
	if by := bytes.Compare(x.Subject[:], y.Subject[:]); by != 0 {
		return by
	}
	return cmp.Or(cmp.Compare(x.Role, y.Role), cmp.Compare(x.Kind, y.Kind), bytes.Compare(x.ID[:], y.ID[:]))
}
