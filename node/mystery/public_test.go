package mystery

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	probes "github.com/starling-network/starling/node/exclusive"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/exclusive"
	"pgregory.net/rapid"
)

// Nothing of an identity is public while it may rent again, nor until it has been quiet and the day has ended; then all of it is, and
// what becomes public does so at the end of a day and stays.
func TestNothingIsPublicOfWhoRents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		var all []Purchase
		for i := range rapid.IntRange(0, 40).Draw(t, "purchases") {
			at := begin.Add(time.Duration(rapid.Int64Range(0, int64(20*24*time.Hour)).Draw(t, "at")))
			p := Purchase{ID: fmt.Sprint(i), Identity: string(rune('a' + rapid.IntRange(0, 3).Draw(t, "identity"))), At: at, Done: rapid.IntRange(0, 9).Draw(t, "done") > 0}
			if p.Done {
				p.Over = at.Add(time.Duration(rapid.Int64Range(0, int64(30*time.Hour)).Draw(t, "took")))
			}
			all = append(all, p)
		}
		now := begin.Add(time.Duration(rapid.Int64Range(0, int64(30*24*time.Hour)).Draw(t, "now")))
		got := published(all, now)
		of := func(identity string) (ps []Purchase) {
			for _, p := range all {
				if p.Identity == identity {
					ps = append(ps, p)
				}
			}
			return ps
		}
		for _, p := range all {
			same := of(p.Identity)
			for _, o := range same {
				if got[o.ID] != got[p.ID] {
					t.Fatal("a part of an identity is public")
				}
				if got[p.ID] && (!o.Done || now.Sub(o.At) < Quiet || now.Sub(o.Over) < Quiet) {
					t.Fatalf("public %s after %s", now, o.Over)
				}
			}
			if got[p.ID] && len(same) < MaxUses {
				t.Fatal("an identity that may rent again is public")
			}
			midnight := now.Truncate(24 * time.Hour)
			if got[p.ID] != published(all, midnight)[p.ID] {
				t.Fatal("it became public within a day")
			}
			if got[p.ID] && !published(all, now.Add(time.Hour))[p.ID] {
				t.Fatal("it is public no more")
			}
			done := !slices.ContainsFunc(same, func(o Purchase) bool { return !o.Done })
			if later := begin.Add(60 * 24 * time.Hour); len(same) >= MaxUses && done && !published(all, later)[p.ID] {
				t.Fatal("it never becomes public")
			}
		}
	})
}

// What is kept of purchases is given by its hash once it is public, and bounded: the wrong ones of a purchase first, the oldest purchases' go.
func TestPublicProbes(t *testing.T) {
	t.Parallel()
	s := &Service{cfg: Config{Store: store.NewMemory(), Log: slog.New(slog.DiscardHandler)}}
	record := func(n int) exclusive.Record {
		return exclusive.Record{Question: exclusive.Question{Execution: 1, Number: uint64(n), Shape: exclusive.Fit(exclusive.CPU, 0), At: 100}, Elapsed: 1, Openings: []byte{}}
	}
	over := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var records []exclusive.Record
	for i := range MaxUses {
		p := Purchase{ID: fmt.Sprintf("%08x", i), Identity: "one", Done: true, At: over, Over: over}
		many := make([]exclusive.Record, heldProbes+3)
		for k := range many {
			many[k] = record(100*i + k)
		}
		if err := s.hold(t.Context(), p, slices.Clone(many), put(t, p)); err != nil {
			t.Fatal(err)
		}
		records = append(records, many[0])
	}
	at := func(now time.Time) int {
		if err := s.look(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		return len(s.public.list)
	}
	if n := at(over.Add(Quiet)); n != 0 {
		t.Errorf("%d are public before the day is over", n)
	}
	if n := at(over.Add(Quiet + 12*time.Hour)); n != MaxUses*heldProbes {
		t.Errorf("%d are public", n)
	}
	if !slices.IsSortedFunc(s.public.list, func(a, b sign.Hash) int { return slices.Compare(a[:], b[:]) }) {
		t.Error("hashes are not in order")
	}
	for _, r := range records { // it is long ago
		if b, err := s.Probe(t.Context(), r.Hash()); err != nil || string(b) != string(r.Marshal()) {
			t.Errorf("%v", err)
		}
	}
	if all, err := s.Probes(t.Context()); err != nil || len(all) != MaxUses*heldProbes {
		t.Errorf("%d, %v", len(all), err)
	}
	if _, err := s.Probe(t.Context(), [32]byte{1}); !errors.Is(err, probes.ErrNoRecord) {
		t.Errorf("what there is not: %v", err)
	}
	// An identity that rents is not public, however full the journal is; the oldest go.
	for i := range maxHeld / heldProbes {
		p := Purchase{ID: fmt.Sprintf("%08x", 1000+i), Identity: fmt.Sprint("busy", i), Done: true, At: over, Over: over}
		many := make([]exclusive.Record, heldProbes)
		for k := range many {
			many[k] = record(1_000_000 + 100*i + k)
		}
		if err := s.hold(t.Context(), p, many, put(t, p)); err != nil {
			t.Fatal(err)
		}
	}
	held := 0
	if err := s.cfg.Store.List(t.Context(), kindHeld, "", func(string, []byte) error { held++; return nil }); err != nil || held > maxHeld+heldProbes {
		t.Errorf("%d are kept, %v", held, err)
	}
	s.public.keys = nil
	if n := at(over.Add(1000 * time.Hour)); n >= MaxUses*heldProbes || n > protocol.MaxProbes {
		t.Errorf("%d are public", n)
	}
}

func put(t *testing.T, p Purchase) store.Put {
	t.Helper()
	p.Spec = task().Spec
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return store.Put{Kind: kindPurchase, Key: p.ID, Value: b}
}
