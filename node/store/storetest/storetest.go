// Package storetest is the contract of store.Store as a test, run on every implementation.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-network/starling/node/store"
	"pgregory.net/rapid"
)

// Run checks one implementation. open returns an empty journal; reopen closes a journal and opens it again.
func Run(t *testing.T, open func(t testing.TB) store.Store, reopen func(t testing.TB, s store.Store) store.Store) {
	t.Run("records", func(t *testing.T) { t.Parallel(); records(t, open(t)) })
	t.Run("limits", func(t *testing.T) { t.Parallel(); limits(t, open(t)) })
	t.Run("list", func(t *testing.T) { t.Parallel(); list(t, open(t)) })
	t.Run("model", func(t *testing.T) { t.Parallel(); model(t, open(t), reopen) })
	t.Run("concurrent", func(t *testing.T) { t.Parallel(); concurrent(t, open(t), reopen) })
	t.Run("context", func(t *testing.T) { t.Parallel(); contexts(t, open(t)) })
	t.Run("closed", func(t *testing.T) { t.Parallel(); closed(t, open(t)) })
}

type failer interface { // *testing.T and *rapid.T
	Helper()
	Fatal(args ...any)
}

func must(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t testing.TB, got, target error) {
	t.Helper()
	if !errors.Is(got, target) {
		t.Fatalf("got %v, want %v", got, target)
	}
}

func records(t *testing.T, s store.Store) {
	ctx := context.Background()
	_, err := s.Get(ctx, "hold", "a")
	want(t, err, store.ErrNotFound)
	value := []byte("one")
	must(t, s.Write(ctx,
		store.Put{Kind: "hold", Key: "a", Value: value},
		store.Put{Kind: "lease", Key: "a", Value: []byte{}}))
	value[0] = 'X' // the store keeps its own copy
	got, err := s.Get(ctx, "hold", "a")
	must(t, err)
	if string(got) != "one" {
		t.Fatalf("got %q", got)
	}
	got[0] = 'Y'
	if got, _ = s.Get(ctx, "hold", "a"); string(got) != "one" {
		t.Fatal("a caller changed the record through its copy")
	}
	got, err = s.Get(ctx, "lease", "a")
	if must(t, err); got == nil || len(got) != 0 {
		t.Fatalf("an empty value came back as %v", got)
	}
	must(t, s.Write(ctx, store.Put{Kind: "hold", Key: "a"}, store.Put{Kind: "hold", Key: "never was"}))
	_, err = s.Get(ctx, "hold", "a")
	want(t, err, store.ErrNotFound)
	must(t, s.Write(ctx)) // nothing to write is no error
	must(t, s.Write(ctx,
		store.Put{Kind: "hold", Key: "b", Value: []byte("1")}, store.Put{Kind: "hold", Key: "b"},
		store.Put{Kind: "hold", Key: "b", Value: []byte("2")}))
	if got, _ = s.Get(ctx, "hold", "b"); string(got) != "2" {
		t.Fatalf("the later put lost: %q", got)
	}
}

func limits(t *testing.T, s store.Store) {
	ctx := context.Background()
	good := store.Put{Kind: "k", Key: "good", Value: []byte("v")}
	for _, bad := range []store.Put{
		{Kind: "", Key: "a"}, {Kind: "k", Key: ""}, {Kind: strings.Repeat("k", store.MaxKind+1), Key: "a"},
		{Kind: "k", Key: strings.Repeat("a", store.MaxKey+1)}, {Kind: "k", Key: "a\x00b"}, {Kind: "k", Key: "\xff"},
		{Kind: "k", Key: "a", Value: make([]byte, store.MaxValue+1)},
	} {
		want(t, s.Write(ctx, good, bad), store.ErrRecord)
	}
	_, err := s.Get(ctx, "k", "good")
	want(t, err, store.ErrNotFound) // all or nothing
	_, err = s.Get(ctx, "", "a")
	want(t, err, store.ErrRecord)
	big := store.Put{
		Kind:  strings.Repeat("k", store.MaxKind),
		Key:   strings.Repeat("a", store.MaxKey),
		Value: bytes.Repeat([]byte{7}, 1<<20),
	}
	must(t, s.Write(ctx, big))
	got, err := s.Get(ctx, big.Kind, big.Key)
	if must(t, err); !bytes.Equal(got, big.Value) {
		t.Fatal("a large value came back changed")
	}
}

func list(t *testing.T, s store.Store) {
	ctx := context.Background()
	var puts []store.Put
	for i := range 700 { // more than one page of any implementation
		puts = append(puts, store.Put{Kind: "receipt", Key: fmt.Sprintf("lease-a/%04d", i), Value: []byte{byte(i)}})
	}
	puts = append(puts,
		store.Put{Kind: "receipt", Key: "lease-b/0001", Value: []byte("b")},
		store.Put{Kind: "receipt", Key: "lease-ä", Value: []byte("u")},
		store.Put{Kind: "voucher", Key: "lease-a/0001", Value: []byte("v")})
	must(t, s.Write(ctx, puts...))
	collect := func(prefix string) (keys []string) {
		must(t, s.List(ctx, "receipt", prefix, func(k string, v []byte) error {
			keys = append(keys, k)
			_, err := s.Get(ctx, "receipt", k) // fn may use the store
			return err
		}))
		return keys
	}
	a := collect("lease-a/")
	if len(a) != 700 || !slices.IsSorted(a) {
		t.Fatalf("%d keys, sorted %v", len(a), slices.IsSorted(a))
	}
	if all := collect(""); len(all) != 702 || !slices.IsSorted(all) {
		t.Fatalf("%d keys, sorted %v", len(all), slices.IsSorted(all))
	}
	if got := collect("lease-c"); len(got) != 0 {
		t.Fatalf("found %v", got)
	}
	stop, n := errors.New("enough"), 0
	want(t, s.List(ctx, "receipt", "", func(string, []byte) error {
		if n++; n == 300 {
			return stop
		}
		return nil
	}), stop)
	if n != 300 {
		t.Fatalf("fn was called %d times after it returned stop", n-300)
	}
	must(t, s.List(ctx, "receipt", "lease-a/", func(k string, _ []byte) error {
		return s.Write(ctx, store.Put{Kind: "receipt", Key: k}) // fn may write too
	}))
	if got := collect("lease-a/"); len(got) != 0 {
		t.Fatalf("%d left", len(got))
	}
}

// model compares the store with a map under random writes and restarts.
func model(t *testing.T, s store.Store, reopen func(testing.TB, store.Store) store.Store) {
	ctx := context.Background()
	kinds, round := []string{"a", "ab", "b"}, 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		prefix := fmt.Sprintf("%d/", round) // one journal serves all rounds
		have := map[string]string{}
		for range rapid.IntRange(1, 12).Draw(rt, "writes") {
			var puts []store.Put
			for range rapid.IntRange(0, 5).Draw(rt, "puts") {
				p := store.Put{
					Kind: rapid.SampledFrom(kinds).Draw(rt, "kind"),
					Key:  prefix + rapid.SampledFrom([]string{"x", "y", "yy", "zé"}).Draw(rt, "key"),
				}
				if rapid.Bool().Draw(rt, "put") {
					p.Value = append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "value")...)
					have[p.Kind+"|"+p.Key] = string(p.Value)
				} else {
					delete(have, p.Kind+"|"+p.Key)
				}
				puts = append(puts, p)
			}
			must(rt, s.Write(ctx, puts...))
		}
		if round%20 == 0 {
			s = reopen(t, s)
		}
		got := map[string]string{}
		for _, kind := range kinds {
			must(rt, s.List(ctx, kind, prefix, func(k string, v []byte) error {
				got[kind+"|"+k] = string(v)
				return nil
			}))
		}
		if !maps.Equal(got, have) {
			rt.Fatalf("store has %v, model %v", got, have)
		}
	})
}

// concurrent: a record is there afterwards, whole, for each write that returned to any of many writers.
func concurrent(t *testing.T, s store.Store, reopen func(testing.TB, store.Store) store.Store) {
	ctx := context.Background()
	const writers, each = 16, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprintf("%02d/%02d", w, i)
				err := s.Write(ctx,
					store.Put{Kind: "left", Key: key, Value: []byte(key)},
					store.Put{Kind: "right", Key: key, Value: []byte(key)})
				if err != nil {
					t.Error(err)
				}
				if v, err := s.Get(ctx, "right", key); err != nil || string(v) != key {
					t.Errorf("%q, %v", v, err)
				}
			}
		})
	}
	wg.Wait()
	s = reopen(t, s)
	for _, kind := range []string{"left", "right"} {
		n := 0
		must(t, s.List(ctx, kind, "", func(k string, v []byte) error {
			if n++; k != string(v) {
				t.Errorf("%s holds %q", k, v)
			}
			return nil
		}))
		if n != writers*each {
			t.Fatalf("%d of %d %s records", n, writers*each, kind)
		}
	}
}

func contexts(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	must(t, s.Write(ctx, store.Put{Kind: "k", Key: "a", Value: []byte("1")}))
	cancel()
	want(t, s.Write(ctx, store.Put{Kind: "k", Key: "a", Value: []byte("2")}), context.Canceled)
	_, err := s.Get(ctx, "k", "a")
	want(t, err, context.Canceled)
	want(t, s.List(ctx, "k", "", func(string, []byte) error { return nil }), context.Canceled)
	got, err := s.Get(context.Background(), "k", "a")
	if must(t, err); string(got) != "1" {
		t.Fatalf("a cancelled write took effect: %q", got)
	}
}

func closed(t *testing.T, s store.Store) {
	ctx := context.Background()
	must(t, s.Close())
	must(t, s.Close())
	want(t, s.Write(ctx, store.Put{Kind: "k", Key: "a", Value: []byte("1")}), store.ErrClosed)
	_, err := s.Get(ctx, "k", "a")
	want(t, err, store.ErrClosed)
	want(t, s.List(ctx, "k", "", func(string, []byte) error { return nil }), store.ErrClosed)
}
