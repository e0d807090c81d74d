package rewards

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
)

// Sources is how many sources of rewards there are at most: the emission and a pool for each mint.
const Sources = 1 + account.MaxMints

// Table is a verifier's statement of an epoch. Layout, little-endian:
//
//	offset  size  field
//	     0     8  epoch
//	     8    40  5 × u64: amount to divide of each source, the emission first; 0 of all but one
//	    48     4  n, lines, at most 65,536
//	    52     4  m, guarded claims, at most 16,384
//	    56   128  n × ( provider[32] ‖ unit[32] ‖ windows u32 ‖ 0 (4) ‖ operations u64 ‖ reads u64 ‖ memory u64
//	              ‖ digest[32] ), strictly ascending
//	          72  m × ( transaction[64] ‖ net u64 ), strictly ascending
type Table struct {
	Epoch  uint64
	Shared [Sources]uint64
	Lines  []Line
	Claims []Claim // none for the emission
}

const (
	tableHead = 56
	lineSize  = 128
	claimSize = sign.SignatureSize + 8
	// MaxTable bounds a table, bytes.
	MaxTable = tableHead + MaxUnits*lineSize + MaxGuarded*claimSize
)

// NewTable is the table of these tallies, in any order.
func NewTable(epoch uint64, shared [Sources]uint64, ts []Tally) Table {
	ts = slices.Clone(ts)
	sortTallies(ts)
	t := Table{Epoch: epoch, Shared: shared}
	for _, x := range ts[:min(len(ts), MaxUnits)] {
		t.Lines = append(t.Lines, x.Line)
	}
	return t
}

// Marshal returns the layout.
func (t Table) Marshal() []byte {
	out := binary.LittleEndian.AppendUint64(make([]byte, 0, tableHead+lineSize*len(t.Lines)+claimSize*len(t.Claims)),
		t.Epoch)
	for _, n := range t.Shared {
		out = binary.LittleEndian.AppendUint64(out, n)
	}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(t.Lines)))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(t.Claims)))
	for _, l := range t.Lines {
		out = append(append(out, l.Provider[:]...), l.Unit[:]...)
		out = binary.LittleEndian.AppendUint64(out, uint64(l.Windows))
		out = binary.LittleEndian.AppendUint64(out, l.Operations)
		out = binary.LittleEndian.AppendUint64(out, l.Reads)
		out = binary.LittleEndian.AppendUint64(out, l.Memory)
		out = append(out, l.Digest[:]...)
	}
	for _, c := range t.Claims {
		out = binary.LittleEndian.AppendUint64(append(out, c.ID[:]...), c.Net)
	}
	return out
}

// Hash is SHA-256 of the layout: a ballot names it.
func (t Table) Hash() sign.Hash { return sign.Sum(t.Marshal()) }

// UnmarshalTable decodes the layout without trailing bytes. It returns ErrTable otherwise. It does not verify; Compare
// does.
func UnmarshalTable(b []byte) (Table, error) {
	if len(b) < tableHead || len(b) > MaxTable {
		return Table{}, fmt.Errorf("%w: %d bytes", ErrTable, len(b))
	}
	t := Table{Epoch: binary.LittleEndian.Uint64(b)}
	for i := range t.Shared {
		t.Shared[i] = binary.LittleEndian.Uint64(b[8+8*i:])
	}
	n, m := binary.LittleEndian.Uint32(b[48:]), binary.LittleEndian.Uint32(b[52:])
	if n > MaxUnits || m > MaxGuarded || len(b)-tableHead != int(n)*lineSize+int(m)*claimSize {
		return Table{}, fmt.Errorf("%w: %d bytes of %d lines and %d claims", ErrTable, len(b), n, m)
	}
	for b = b[tableHead:]; len(t.Lines) < int(n); b = b[lineSize:] {
		windows := binary.LittleEndian.Uint64(b[64:])
		l := Line{UnitKey: UnitKey{Provider: sign.Key(b[:32]), Unit: market.UnitID(b[32:64])}, Windows: uint32(windows),
			Operations: binary.LittleEndian.Uint64(b[72:]), Reads: binary.LittleEndian.Uint64(b[80:]),
			Memory: binary.LittleEndian.Uint64(b[88:]), Digest: sign.Hash(b[96:128])}
		if windows < 1 || windows > MaxWindows {
			return Table{}, fmt.Errorf("%w: unit %s passed %d windows", ErrTable, l.Unit.Short(), windows)
		}
		if k := len(t.Lines); k > 0 && t.Lines[k-1].UnitKey.Compare(l.UnitKey) >= 0 {
			return Table{}, fmt.Errorf("%w: unit %s: duplicate, or not in order", ErrTable, l.Unit.Short())
		}
		t.Lines = append(t.Lines, l)
	}
	for ; len(b) > 0; b = b[claimSize:] {
		c := Claim{ID: sign.Signature(b[:sign.SignatureSize]), Net: binary.LittleEndian.Uint64(b[sign.SignatureSize:])}
		if k := len(t.Claims); c.Net == 0 || k > 0 && bytes.Compare(t.Claims[k-1].ID[:], c.ID[:]) >= 0 {
			return Table{}, fmt.Errorf("%w: claim %s: repeated, out of order or without payment", ErrTable, c.ID)
		}
		t.Claims = append(t.Claims, c)
	}
	return t, nil
}

// shortBy is the tolerance of a table: its value of a unit may be a tenth below the verifier's.
const shortBy = 10

// Compare compares a table with a verifier's own counts. It returns the units with a different line. The verifier must
// see their certificates before it accepts them. It returns ErrTable if the table is another epoch's or has more
// windows than the epoch. It returns ErrShort if a unit's weight is more than a tenth below the verifier's own count.
func (t Table) Compare(e Epoch, mine []Tally) (unseen []UnitKey, err error) {
	if t.Epoch != e.Number {
		return nil, fmt.Errorf("%w: epoch %d, want %d", ErrTable, t.Epoch, e.Number)
	}
	known := map[UnitKey]Line{}
	for _, m := range mine {
		known[m.UnitKey] = m.Line
	}
	for _, l := range t.Lines {
		if l.Windows > e.Windows() {
			return nil, fmt.Errorf("%w: unit %s passed %d windows of %d",
				ErrTable, l.Unit.Short(), l.Windows, e.Windows())
		}
		m, here := known[l.UnitKey]
		delete(known, l.UnitKey)
		if here && l == m {
			continue
		}
		if here && l.weight() < m.weight()-m.weight()/shortBy {
			return nil, fmt.Errorf("%w: unit %s of %s: passed %d windows, the table has %d",
				ErrShort, l.Unit.Short(), l.Provider.Short(), m.Windows, l.Windows)
		}
		unseen = append(unseen, l.UnitKey)
	}
	for k, m := range known {
		if m.weight() > 0 {
			return nil, fmt.Errorf("%w: unit %s of %s: missing", ErrShort, k.Unit.Short(), k.Provider.Short())
		}
	}
	return unseen, nil
}

// Line is that of a unit.
func (t Table) Line(k UnitKey) (Line, bool) {
	i, ok := slices.BinarySearchFunc(t.Lines, k, func(l Line, k UnitKey) int { return l.UnitKey.Compare(k) })
	if !ok {
		return Line{}, false
	}
	return t.Lines[i], true
}

// Payee is a wallet with its reward.
type Payee struct {
	Wallet sign.Key
	Amount uint64
}

// Award is the payments from one source for an epoch.
type Award struct {
	Source uint8
	Epoch  uint64
	Payees []Payee // strictly ascending by wallet, each with a positive amount
}

// Payout returns the wallet that a peer key is paid into; false if the key is not registered, and is not paid.
type Payout func(peer sign.Key) (wallet sign.Key, ok bool)

// Divide returns a table's payments from a source. The tallies belong to its lines, and guards to its claims; guardians
// get nothing of the emission. It returns ErrNothing if no wallet is paid.
func (t Table) Divide(source uint8, tallies []Tally, g Guards, to Payout) (Award, error) {
	if int(source) >= Sources {
		return Award{}, fmt.Errorf("%w: source %d", ErrNothing, source)
	}
	weights := map[sign.Key]uint64{}
	add := func(peer sign.Key, weight uint64) {
		if wallet, ok := to(peer); ok && weight > 0 {
			weights[wallet] += weight
		}
	}
	for _, x := range tallies {
		if source == 0 {
			add(x.Provider, x.weight())
			continue
		}
		for member, verdicts := range x.Judged {
			add(member, uint64(verdicts))
		}
	}
	amounts, rest := map[sign.Key]uint64{}, t.Shared[source]
	if source > 0 {
		amounts, rest = g.divide(rest, to)
	}
	a := Award{Source: source, Epoch: t.Epoch, Payees: divide(rest, weights, amounts)}
	if len(a.Payees) == 0 {
		return Award{}, fmt.Errorf("%w: epoch %d, source %d", ErrNothing, t.Epoch, source)
	}
	return a, nil
}

// divide gives each wallet ⌊sum · weight / all weights⌋ and its amount beside that. It keeps only as many payees as a
// payout may have: those with the largest amounts.
func divide(sum uint64, weights, amounts map[sign.Key]uint64) []Payee {
	var all uint64
	for _, w := range weights {
		all += w
	}
	for wallet, w := range weights {
		amounts[wallet] += share(sum, w, all)
	}
	out := make([]Payee, 0, len(amounts))
	for wallet, a := range amounts {
		if a > 0 {
			out = append(out, Payee{wallet, a})
		}
	}
	byWallet := func(a, b Payee) int { return bytes.Compare(a.Wallet[:], b.Wallet[:]) }
	if len(out) > account.MaxPayees {
		slices.SortFunc(out, func(a, b Payee) int { return cmp.Or(cmp.Compare(b.Amount, a.Amount), byWallet(a, b)) })
		out = out[:account.MaxPayees]
	}
	slices.SortFunc(out, byWallet)
	return out
}

// share is ⌊a · b / c⌋, at most 2⁶⁴ − 1; c is not 0.
func share(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return 1<<64 - 1
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}

func (a Award) leaves() [][]byte {
	out := make([][]byte, len(a.Payees))
	for i, p := range a.Payees {
		out[i] = account.RewardLeaf(p.Wallet, p.Amount)
	}
	return out
}

// Rewards is its ballot's content, without the table's hash.
func (a Award) Rewards() account.Rewards {
	r := account.Rewards{Source: a.Source, Epoch: a.Epoch, Count: uint32(len(a.Payees)), Root: merkle.Root(a.leaves())}
	for _, p := range a.Payees {
		r.Sum += p.Amount
	}
	return r
}

// Proof proves the reward of a wallet. It returns ErrNotPaid.
func (a Award) Proof(wallet sign.Key) (index uint32, amount uint64, path merkle.Proof, err error) {
	i, ok := slices.BinarySearchFunc(a.Payees, wallet, func(p Payee, w sign.Key) int {
		return bytes.Compare(p.Wallet[:], w[:])
	})
	if !ok {
		return 0, 0, nil, fmt.Errorf("%w: %s", ErrNotPaid, wallet)
	}
	return uint32(i), a.Payees[i].Amount, merkle.Prove(a.leaves(), i), nil
}

const (
	payeeSize = 40
	// MaxPayees bounds the payees of an award, bytes.
	MaxPayees = account.MaxPayees * payeeSize
)

// Marshal returns the payees: n × ( wallet[32] ‖ amount u64 ).
func (a Award) Marshal() []byte {
	var out []byte
	for _, l := range a.leaves() {
		out = append(out, l...)
	}
	return out
}

// UnmarshalAward decodes the payees of a source and an epoch, strictly ascending. Compare its Rewards with the root to
// verify them.
func UnmarshalAward(source uint8, epoch uint64, b []byte) (Award, error) {
	if len(b) == 0 || len(b)%payeeSize != 0 || len(b) > MaxPayees {
		return Award{}, fmt.Errorf("%w: payees of %d bytes", market.ErrMalformed, len(b))
	}
	a := Award{Source: source, Epoch: epoch}
	var sum uint64
	for ; len(b) > 0; b = b[payeeSize:] {
		p := Payee{Wallet: sign.Key(b[:32]), Amount: binary.LittleEndian.Uint64(b[32:])}
		var over uint64
		if sum, over = bits.Add64(sum, p.Amount, 0); over != 0 || p.Amount == 0 {
			return Award{}, fmt.Errorf("%w: amounts that do not add up", market.ErrMalformed)
		}
		if n := len(a.Payees); n > 0 && bytes.Compare(a.Payees[n-1].Wallet[:], p.Wallet[:]) >= 0 {
			return Award{}, fmt.Errorf("%w: wallet %s: duplicate, or not in order", market.ErrMalformed, p.Wallet)
		}
		a.Payees = append(a.Payees, p)
	}
	return a, nil
}
