package rewards_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/rewards"
)

// A proposer who takes a unit's windows away, or leaves it out, is refused as soon as the unit is more than a tenth
// short; and a line that is other than the verifier's own is never taken unseen.
func TestForgedTable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		mine := genTallies(t)
		table := rewards.NewTable(3, genShared(t), mine)
		if unseen, err := table.Compare(epoch3, mine); err != nil || len(unseen) > 0 {
			t.Fatalf("an honest table: unseen %v, %v", unseen, err)
		}
		if len(table.Lines) == 0 {
			return
		}
		i := rapid.IntRange(0, len(table.Lines)-1).Draw(t, "line")
		l := table.Lines[i]
		if rapid.Bool().Draw(t, "left out") {
			table.Lines = append(table.Lines[:i:i], table.Lines[i+1:]...)
			_, err := table.Compare(epoch3, mine)
			if worth(l) && !errors.Is(err, rewards.ErrShort) {
				t.Fatalf("%+v is left out: %v", l, err)
			}
			return
		}
		table.Lines[i].Windows = rapid.Uint32Range(1, 12).Draw(t, "windows")
		unseen, err := table.Compare(epoch3, mine)
		switch now := table.Lines[i].Windows; {
		case now > epoch3.Windows():
			if !errors.Is(err, rewards.ErrTable) {
				t.Fatalf("%d windows of %d: %v", now, epoch3.Windows(), err)
			}
		case err != nil:
			if !errors.Is(err, rewards.ErrShort) || 10*now >= 9*l.Windows {
				t.Fatalf("%d windows, %d counted: %v", now, l.Windows, err)
			}
		case worth(l) && 10*now < 9*l.Windows:
			t.Fatalf("%d windows of %d are enough", now, l.Windows)
		case now != l.Windows && (len(unseen) != 1 || unseen[0] != l.UnitKey), now == l.Windows && len(unseen) > 0:
			t.Fatalf("%d windows, %d counted: unseen %v", now, l.Windows, unseen)
		}
	})
}

// worth reports whether a unit has a capacity, of which a tenth can be told.
func worth(l rewards.Line) bool { return min(l.Operations/350e3, l.Reads/26, l.Memory/76) > 10 }

// Each unit's line is found in a table, and no other.
func TestLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ts := genTallies(t)
		table := rewards.NewTable(3, genShared(t), ts)
		stranger := genTally(t).UnitKey
		for _, x := range ts {
			if l, ok := table.Line(x.UnitKey); !ok || l != x.Line {
				t.Fatalf("%+v, %v", l, ok)
			}
			if x.UnitKey == stranger {
				return
			}
		}
		if l, ok := table.Line(stranger); ok {
			t.Fatalf("a unit that is not there: %+v", l)
		}
	})
}
