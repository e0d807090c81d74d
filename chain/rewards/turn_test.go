package rewards

import (
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market/sign"
)

var turnVotes = account.Votes{VotingSlots: 160, LockSlots: 1, LeastBonded: 1, LeastBond: 100, FirstSlot: 0, EpochSlots: 50, EpochsOfMonth: 2}

func drawn(bonds ...uint64) Turns {
	var all []account.Provider
	for i, b := range bonds {
		all = append(all, account.Provider{Peer: sign.Key{byte(i)}, Bonded: b, Raised: 10})
	}
	return NewTurns(turnVotes, 0, 1, 60, sign.Hash{7}, all, func(p account.Provider) sign.Key { return p.Peer })
}

// Over many turns each voter has as many as its part of what is bonded, and whoever splits its bond has no more for it.
func TestTurnsAreDrawnByBond(t *testing.T) {
	t.Parallel()
	const turns = 40_000
	for _, bonds := range [][]uint64{{1000, 3000, 6000}, {100, 100, 100, 100, 100, 500}, {math.MaxUint64 / 4, math.MaxUint64 / 4, math.MaxUint64 / 2}} {
		d, won, total := drawn(bonds...), map[sign.Key]int{}, 0.0
		for turn := range uint64(turns) {
			k, ok := d.Of(turn)
			if !ok {
				t.Fatal("nobody's turn")
			}
			won[k]++
		}
		for _, b := range bonds {
			total += float64(b)
		}
		for i, b := range bonds {
			want := turns * float64(b) / total
			if got := float64(won[sign.Key{byte(i)}]); math.Abs(got-want) > 5*math.Sqrt(want) {
				t.Errorf("voter %d of %v has %v turns, want %v", i, bonds, got, want)
			}
		}
	}
}

// Whoever has less than the least bond, or raised its bond when the epoch was over, has no turn, and what one bonds or releases
// moves nobody else before another.
func TestTurnsOfWhom(t *testing.T) {
	t.Parallel()
	if _, ok := drawn().Of(0); ok {
		t.Error("nobody's turn is somebody's")
	}
	if _, ok := drawn(99, 0, 1).Of(0); ok {
		t.Error("less than the least bond has a turn")
	}
	late := NewTurns(turnVotes, 0, 1, 60, sign.Hash{7}, []account.Provider{{Bonded: 1000, Raised: 50}}, func(p account.Provider) sign.Key { return p.Peer })
	if _, ok := late.Of(0); ok {
		t.Error("a bond that was raised after the epoch has a turn")
	}
	before, after := drawn(1000, 1000, 1000), drawn(1000, 1000, 2000)
	for turn := range uint64(200) {
		a, _ := before.Of(turn)
		if b, _ := after.Of(turn); a != b && b != (sign.Key{2}) {
			t.Errorf("turn %d went from %d to %d when 2 bonded more", turn, a[0], b[0])
		}
	}
	if turn, ok := before.At(59); ok {
		t.Errorf("turn %d before the first", turn)
	}
	for slot, want := range map[uint64]uint64{60: 0, 69: 0, 70: 1, 160: 10} {
		if turn, ok := before.At(slot); !ok || turn != want {
			t.Errorf("slot %d is in turn %d, %v; want %d", slot, turn, ok, want)
		}
	}
}

func TestNegLog2(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "n")
		n := binary.LittleEndian.Uint64(b) >> rapid.IntRange(0, 63).Draw(t, "shift")
		want := 64 - math.Log2(float64(n)+1)
		if got := float64(negLog2(n)) / (1 << logBits); math.Abs(got-want) > 1e-9 {
			t.Fatalf("%d: %v, want %v", n, got, want)
		}
	})
	if negLog2(math.MaxUint64) != 0 || negLog2(0) != 64<<logBits {
		t.Errorf("%d, %d", negLog2(math.MaxUint64), negLog2(0))
	}
}

// At most a sixteenth of a pool stays, and what comes while verifiers look changes nothing, or one step.
func TestDivisible(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		holds := rapid.Uint64().Draw(t, "holds") >> rapid.IntRange(0, 63).Draw(t, "shift")
		d := Divisible(holds)
		if d > holds || holds-d > holds/16 || Divisible(d) != d || holds > 0 && d == 0 {
			t.Fatalf("%d of %d", d, holds)
		}
	})
}
