package rewards

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// Limits of an epoch.
const (
	// MaxWindows is how many windows of audits an epoch may have.
	MaxWindows = 4096
	// MaxUnits is how many units a table has at most, MaxUnitsOf how many of one provider.
	MaxUnits   = 1 << 16
	MaxUnitsOf = 1 << 10
	// MaxCertificates bounds the certificates of a unit in an epoch, bytes.
	MaxCertificates = MaxWindows * audit.MaxCertificate
)

// Epoch is an epoch and the audit windows that begin in it, From to To − 1.
type Epoch struct {
	Number   uint64
	From, To audit.Window
}

// EpochOf returns epoch number n of a network with windows of the given slots. It returns ErrEpoch if the epoch never
// ends or has too many windows.
func EpochOf(v account.Votes, slots, n uint64) (Epoch, error) {
	end := v.EpochEnd(n)
	if !v.On() || slots == 0 || end == ^uint64(0) {
		return Epoch{}, fmt.Errorf("%w: number %d", ErrEpoch, n)
	}
	first := func(slot uint64) audit.Window { return audit.Window(slot/slots + min(slot%slots, 1)) }
	e := Epoch{Number: n, From: first(end - v.EpochSlots), To: first(end)}
	if e.To-e.From > MaxWindows {
		return Epoch{}, fmt.Errorf("%w: %d windows in one, at most %d are counted", ErrEpoch, e.To-e.From, MaxWindows)
	}
	return e, nil
}

// Last returns the number of the newest epoch that has ended at a slot; false before the first end.
func Last(v account.Votes, now market.Slot) (uint64, bool) {
	if !v.On() || uint64(now) < v.EpochEnd(0) {
		return 0, false
	}
	return (uint64(now)-v.FirstSlot)/v.EpochSlots - 1, true
}

// Has reports whether a window is counted in the epoch.
func (e Epoch) Has(w audit.Window) bool { return e.From <= w && w < e.To }

// Windows is how many it has.
func (e Epoch) Windows() uint32 { return uint32(e.To - e.From) }

// UnitKey names a unit of a provider.
type UnitKey struct {
	Provider sign.Key
	Unit     market.UnitID
}

// Compare orders by provider and unit.
func (k UnitKey) Compare(o UnitKey) int {
	if c := bytes.Compare(k.Provider[:], o.Provider[:]); c != 0 {
		return c
	}
	return k.Unit.Compare(o.Unit)
}

// Line is the result of an epoch for a unit.
type Line struct {
	UnitKey
	Windows    uint32 // that it passed
	Operations uint64 // per second, as audit.Rates: its rate in nine of ten of them
	Reads      uint64
	Memory     uint64    // bytes that it walked over, the least of all
	Digest     sign.Hash // of the certificates that were counted: Tally
}

// Tally is a line with the verdicts of each member that judged.
type Tally struct {
	Line
	Judged map[sign.Key]uint32
}

// The unit of capacity: a billionth of the floor of a card of the class gpu/h100. A unit counts by the least of its two
// rates and its memory, and for at most ten such cards. Several identities may share a card and answer at one instant.
// The least of three sums is at least the sum of the leasts, so they would count for at most the card, if times
// depended on the hardware alone. They do not: chain/PROTOCOL.md, section 9, has the excess.
const (
	pointOperations = 350e12
	pointReads      = 25_400e6
	pointMemory     = 70 << 30
	points          = 1_000_000_000
	maxPoints       = 10 * points
)

// capacity is a line's weight in one window.
func (l Line) capacity() uint64 {
	return min(share(l.Operations, points, pointOperations), share(l.Reads, points, pointReads),
		share(l.Memory, points, pointMemory), maxPoints)
}

// weight is capacity × windows: at most 10¹⁰ · 2¹², so that the sum over all lines is less than 2⁶⁴.
func (l Line) weight() uint64 { return l.capacity() * uint64(min(l.Windows, MaxWindows)) }

// Count counts the checked certificates of one unit. It returns ErrCertificates unless they are in order of their
// windows, one of each, and all of the epoch.
func Count(e Epoch, k UnitKey, cs []audit.Certificate) (Tally, error) {
	t := Tally{Line: Line{UnitKey: k, Windows: uint32(len(cs))}, Judged: map[sign.Key]uint32{}}
	digest := []byte("starling/certificates/v1")
	var rates []audit.Rates
	for i, c := range cs {
		of := c.Target()
		switch {
		case of.Provider != k.Provider || of.Unit != k.Unit:
			return Tally{}, fmt.Errorf("%w: certificate of unit %s of %s: want unit %s of %s",
				ErrCertificates, of.Unit.Short(), of.Provider.Short(), k.Unit.Short(), k.Provider.Short())
		case !e.Has(of.Window):
			return Tally{}, fmt.Errorf("%w: certificate of window %d: epoch %d has windows %d to %d",
				ErrCertificates, of.Window, e.Number, e.From, e.To-1)
		case i > 0 && cs[i-1].Target().Window >= of.Window:
			return Tally{}, fmt.Errorf("%w: window %d: duplicate, or not in order",
				ErrCertificates, of.Window)
		}
		h := c.Hash()
		digest = append(digest, h[:]...)
		rates = append(rates, c.Rates())
		for _, m := range c.Members() {
			t.Judged[m]++
		}
	}
	if len(cs) == 0 {
		return Tally{}, fmt.Errorf("%w: none of unit %s of %s", ErrCertificates, k.Unit.Short(), k.Provider.Short())
	}
	r := audit.Capacity(rates)
	t.Operations, t.Reads, t.Memory, t.Digest = r.Operations, r.Reads, r.Memory, sign.Sum(digest)
	return t, nil
}

// MarshalCertificates puts certificates one after the other.
func MarshalCertificates(cs []audit.Certificate) []byte {
	var out []byte
	for _, c := range cs {
		out = append(out, c.Marshal()...)
	}
	return out
}

// UnmarshalCertificates decodes at most MaxWindows certificates. It does not verify them.
func UnmarshalCertificates(b []byte) ([]audit.Certificate, error) {
	var out []audit.Certificate
	for len(b) > 0 {
		c, rest, err := audit.CutCertificate(b)
		if err != nil {
			return nil, err
		}
		if len(out) == MaxWindows {
			return nil, fmt.Errorf("%w: more than %d certificates", market.ErrMalformed, MaxWindows)
		}
		out, b = append(out, c), rest
	}
	return out, nil
}

// sortTallies orders tallies by unit.
func sortTallies(ts []Tally) {
	slices.SortFunc(ts, func(a, b Tally) int { return a.UnitKey.Compare(b.UnitKey) })
}
