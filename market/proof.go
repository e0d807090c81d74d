package market

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// MaxShown bounds the proven units of one offer: the list of their records must fit into one answer.
const MaxShown = 256

// shownSize is a unit and its record in a list, bytes.
const shownSize = 2 * sign.HashSize

// Shown is a unit and the audit record (verify/audit) by which it is sold.
type Shown struct {
	Unit   UnitID    `json:"unit"`
	Record sign.Hash `json:"record"`
}

// leaf is unit[32] ‖ record[32].
func (s Shown) leaf() []byte { return append(s.Unit[:], s.Record[:]...) }

// SortShown returns the list by ascending unit. It returns ErrUnits if the list is empty, has more than MaxShown
// entries, or has a unit or a record twice: a record is of one unit.
func SortShown(list []Shown) ([]Shown, error) {
	if len(list) == 0 || len(list) > MaxShown {
		return nil, fmt.Errorf("%w: %d units shown, want 1 to %d", ErrUnits, len(list), MaxShown)
	}
	sorted := slices.SortedFunc(slices.Values(list), func(a, b Shown) int { return a.Unit.Compare(b.Unit) })
	records := make(map[sign.Hash]bool, len(sorted))
	for i, s := range sorted {
		switch {
		case i > 0 && s.Unit == sorted[i-1].Unit:
			return nil, fmt.Errorf("%w: unit %s is shown twice", ErrUnits, s.Unit.Short())
		case records[s.Record]:
			return nil, fmt.Errorf("%w: record %s is to show two units", ErrUnits, s.Record.Short())
		}
		records[s.Record] = true
	}
	return sorted, nil
}

// ProofRoot is an offer's commitment to its records: the Merkle root (market/merkle) over the leaves of the list by
// ascending unit, in whatever order the list is. It is zero for an empty list. It binds each record to its unit.
// Another record for that unit contradicts the provider's signature.
func ProofRoot(list []Shown) (sign.Hash, error) {
	if len(list) == 0 {
		return sign.Hash{}, nil
	}
	sorted, err := SortShown(list)
	if err != nil {
		return sign.Hash{}, err
	}
	leaves := make([][]byte, len(sorted))
	for i, s := range sorted {
		leaves[i] = s.leaf()
	}
	return merkle.Root(leaves), nil
}

// MarshalShown is the list as it travels: its leaves by ascending unit.
func MarshalShown(list []Shown) ([]byte, error) {
	sorted, err := SortShown(list)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(sorted)*shownSize)
	for _, s := range sorted {
		out = append(out, s.leaf()...)
	}
	return out, nil
}

// UnmarshalShown reads a list and checks that it is the one behind root. ErrMalformed or ErrUnits.
func UnmarshalShown(b []byte, root sign.Hash) ([]Shown, error) {
	if len(b) == 0 || len(b)%shownSize != 0 || len(b) > MaxShown*shownSize {
		return nil, malformed("units shown", "%d bytes, want 1 to %d times %d", len(b), MaxShown, shownSize)
	}
	list := make([]Shown, len(b)/shownSize)
	for i := range list {
		at := b[i*shownSize:]
		list[i] = Shown{UnitID(at[:sign.HashSize]), sign.Hash(at[sign.HashSize:shownSize])}
		if i > 0 && list[i].Unit.Compare(list[i-1].Unit) <= 0 {
			return nil, malformed("units shown", "not in ascending order")
		}
	}
	got, err := ProofRoot(list)
	if err != nil {
		return nil, err
	}
	if got != root {
		return nil, fmt.Errorf("%w: the records listed have root %s, the offer's is %s",
			ErrUnits, got.Short(), root.Short())
	}
	return list, nil
}
