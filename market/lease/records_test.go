package lease

import (
	"bytes"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"pgregory.net/rapid"
)

// TestRecords: records are ascending by hold id and each is found, after any puts and drops, and a change of a copy
// leaves the original as it was.
func TestRecords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.Map(rapid.IntRange(0, 12), func(n int) market.HoldID { return market.HoldID{byte(n * 37)} })
		var rs records
		want := map[market.HoldID]uint32{}
		for n := range rapid.IntRange(1, 40).Draw(t, "changes") {
			before, id := rs, ids.Draw(t, "id")
			was := slices.Clone(rs)
			rs = slices.Clone(rs)
			if rapid.Bool().Draw(t, "put") {
				rs.put(&Record{ID: id, Rank: uint32(n)})
				want[id] = uint32(n)
			} else {
				rs.drop(id)
				delete(want, id)
			}
			if !slices.Equal(before, was) {
				t.Fatalf("a change of a copy changed the original: %v, was %v", before, was)
			}
		}
		if len(rs) != len(want) || !slices.IsSortedFunc(rs, func(a, b *Record) int { return bytes.Compare(a.ID[:], b.ID[:]) }) {
			t.Fatalf("%d records, want %d, ascending", len(rs), len(want))
		}
		for n := range 13 {
			id := market.HoldID{byte(n * 37)}
			rank, known := want[id]
			if r := rs.find(id); (r != nil) != known || known && r.Rank != rank {
				t.Fatalf("hold %s: found %v, want rank %d: %v", id.Short(), r, rank, known)
			}
		}
		if r := rs.lease(market.LeaseID{}); r != nil {
			t.Fatalf("the zero lease is that of hold %s", r.ID.Short())
		}
	})
}

// TestStock compares a stock with one map from unit to record: units are free, withdrawn or held, the holder is the
// record assigned last, and a record that is over gives up no unit of another.
func TestStock(t *testing.T) {
	t.Parallel()
	units := make([]market.Unit, 6)
	for i := range units {
		units[i] = market.Unit{ID: market.UnitID{byte(i + 1)}, Class: "cpu"}
		if i >= 4 {
			units[i].Class = "gpu/a"
		}
	}
	stranger := market.UnitID{99}
	rapid.Check(t, func(t *rapid.T) {
		subset := rapid.Custom(func(t *rapid.T) []market.UnitID {
			ids := []market.UnitID{stranger}
			for _, u := range units {
				if rapid.Bool().Draw(t, "unit") {
					ids = append(ids, u.ID)
				}
			}
			return ids
		})
		s := newStock(units)
		holder := map[market.UnitID]market.HoldID{}
		var out []market.UnitID
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			before := slices.Clone(s.holder)
			old := s
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				out = subset.Draw(t, "withdrawn")
				s.out = s.marked(out)
			case 1: // a new hold takes units that are free
				r := &Record{ID: market.HoldID{byte(rapid.IntRange(1, 200).Draw(t, "hold"))}, State: Held}
				for _, id := range subset.Draw(t, "held") {
					if _, held := holder[id]; !held {
						r.Units = append(r.Units, id)
					}
				}
				s = s.edit()
				s.assign(r, r)
				for _, id := range r.Units {
					if id != stranger {
						holder[id] = r.ID
					}
				}
			case 2: // a hold is over, and names units that others have
				over := market.HoldID{byte(rapid.IntRange(1, 200).Draw(t, "over"))}
				if len(holder) > 0 && rapid.Bool().Draw(t, "known") {
					for _, u := range units {
						if id, held := holder[u.ID]; held {
							over = id
						}
					}
				}
				r := &Record{ID: over, State: Released, Units: subset.Draw(t, "units")}
				s = s.edit()
				s.assign(r, nil)
				for _, id := range r.Units {
					if holder[id] == r.ID {
						delete(holder, id)
					}
				}
			}
			if !slices.Equal(old.holder, before) {
				t.Fatal("a change of a copy changed the original")
			}
			free, total := map[market.Class]int{}, map[market.Class]int{}
			for _, u := range units {
				id, held := holder[u.ID]
				gone := slices.Contains(out, u.ID)
				if r := s.holds(u.ID); (r != nil) != held || held && r.ID != id {
					t.Fatalf("unit %s is held by %v, want %s: %v", u.ID.Short(), r, id.Short(), held)
				}
				if s.withdrawn(u.ID) != gone {
					t.Fatalf("unit %s: withdrawn %v, want %v", u.ID.Short(), s.withdrawn(u.ID), gone)
				}
				if !held && !gone {
					free[u.Class]++
				}
				if held || !gone {
					total[u.Class]++
				}
			}
			for _, c := range []market.Class{"cpu", "gpu/a", "gpu/b"} {
				if f, n := s.count(c, s.free), s.total(c); f != free[c] || n != total[c] {
					t.Fatalf("class %s: %d free of %d, want %d of %d", c, f, n, free[c], total[c])
				}
			}
			if s.holds(stranger) != nil || s.withdrawn(stranger) {
				t.Fatal("an unknown unit is held or withdrawn")
			}
		}
	})
}
