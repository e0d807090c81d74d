package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-datastore"
	"github.com/ipfs/go-datastore/query"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/p2ptest"
)

// words are values of which the longer is better, and of two the later in the alphabet.
func words(most int64) Values {
	return Values{
		Name: "test-words", MaxKey: 8, MaxValue: 16, MaxStored: most,
		Check: func(_, value []byte) error {
			if len(value) == 0 || bytes.Contains(value, []byte("bad")) {
				return ErrMalformed
			}
			return nil
		},
		Better: func(_ []byte, values [][]byte) (int, error) {
			best := 0
			for i, v := range values {
				if len(v) > len(values[best]) || len(v) == len(values[best]) && bytes.Compare(v, values[best]) > 0 {
					best = i
				}
			}
			if len(values[best]) == 0 {
				return 0, ErrNotFound
			}
			return best, nil
		},
	}
}

// The better value wins wherever it was put, a bad one is stored nowhere, and what is there cannot be taken away.
func TestValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 6, 2*time.Millisecond)
		var all []*Discovery
		for _, h := range net.Hosts {
			d, err := New(h, Config{Network: p2ptest.Network, Values: []Values{words(1 << 10)}, Logger: p2ptest.Quiet()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			all = append(all, d)
		}
		if err := all[0].PutValue(t.Context(), "test-words", []byte("k"), []byte("alone")); !errors.Is(err, ErrNoPeers) {
			t.Errorf("nobody is there: %v", err)
		}
		net.ConnectAll()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		put := func(i int, value string) error {
			for {
				err := all[i].PutValue(ctx, "test-words", []byte("k"), []byte(value))
				if !errors.Is(err, ErrNoPeers) {
					return err
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		if err := put(1, "short"); err != nil {
			t.Fatal(err)
		}
		if err := put(2, "much longer"); err != nil {
			t.Fatal(err)
		}
		if err := put(3, "bad but longest"); !errors.Is(err, ErrMalformed) {
			t.Errorf("a bad value: %v", err)
		}
		if err := put(4, "short again"); err != nil { // as long as the best, and later
			t.Fatal(err)
		}
		if err := put(5, "tiny"); err == nil {
			t.Error("a worse value was put over a better one that this peer holds")
		}
		for i, d := range all {
			got, err := d.GetValue(ctx, "test-words", []byte("k"))
			if err != nil || string(got) != "short again" {
				t.Errorf("peer %d reads %q: %v", i, got, err)
			}
		}
		if _, err := all[0].GetValue(ctx, "test-words", []byte("none")); !errors.Is(err, ErrNotFound) {
			t.Errorf("a key without a value: %v", err)
		}
		if _, err := all[0].GetValue(ctx, "other", []byte("k")); !errors.Is(err, ErrMalformed) {
			t.Errorf("a kind that nobody knows: %v", err)
		}
		if err := all[0].PutValue(ctx, "test-words", []byte("a long key"), []byte("v")); !errors.Is(err, ErrMalformed) {
			t.Errorf("a key that is too long: %v", err)
		}
		if err := all[0].PutValue(ctx, "test-words", []byte("k"), bytes.Repeat([]byte("v"), 17)); !errors.Is(err, ErrMalformed) {
			t.Errorf("a value that is too long: %v", err)
		}
	})
}

func TestValuesConfiguration(t *testing.T) {
	t.Parallel()
	good := words(1)
	for name, change := range map[string]func(v *Values){
		"name of records": func(v *Values) { v.Name = namespace },
		"bad name":        func(v *Values) { v.Name = "a/b" },
		"no key":          func(v *Values) { v.MaxKey = 0 },
		"no value":        func(v *Values) { v.MaxValue = 0 },
		"no room":         func(v *Values) { v.MaxStored = 0 },
		"no check":        func(v *Values) { v.Check = nil },
		"no choice":       func(v *Values) { v.Better = nil },
	} {
		v := good
		change(&v)
		if v.check() == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := good.check(); err != nil {
		t.Error(err)
	}
}

// What a peer holds stays within its bound, each kind for itself, and the nearest stay.
func TestHeld(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newHeld(idOf(1), map[string]int64{"a": 100, "b": 100})
	self := sha256.Sum256([]byte(idOf(1)))
	distance := func(raw string) []byte {
		d := sha256.Sum256([]byte(raw))
		for i := range d {
			d[i] ^= self[i]
		}
		return d[:]
	}
	nearest := ""
	for _, kind := range []string{"b", "a"} {
		nearest = ""
		for i := range 40 {
			raw := fmt.Sprintf("/%s/%d", kind, i)
			if nearest == "" || bytes.Compare(distance(raw), distance(nearest)) < 0 {
				nearest = raw
			}
			k := datastore.NewKey("/" + kind + "/" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(raw)))
			for range 2 { // the second one takes the room of the first
				if err := s.Put(ctx, k, make([]byte, 20)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := s.Put(ctx, datastore.NewKey("/unknown"), make([]byte, 20)); err != nil {
		t.Fatal(err)
	}
	count := func() (a, b int) {
		res, err := s.Query(ctx, query.Query{KeysOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		all, err := res.Rest()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			switch e.Key[1] {
			case 'a':
				a++
			case 'b':
				b++
			default:
				t.Errorf("%s is held", e.Key)
			}
		}
		return a, b
	}
	if a, b := count(); a != 5 || b != 5 {
		t.Errorf("%d and %d values of 20 bytes are held, want 5 of each", a, b)
	}
	k := datastore.NewKey("/a/" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(nearest)))
	if has, err := s.Has(ctx, k); err != nil || !has {
		t.Errorf("the nearest value is gone: %v", err)
	}
	if err := s.Delete(ctx, k); err != nil {
		t.Fatal(err)
	}
	if a, _ := count(); a != 4 || s.bytes["a"] != 80 {
		t.Errorf("after a deletion %d values and %d bytes are held", a, s.bytes["a"])
	}
}

// TestAttackFullStore: a store full of strangers' small records takes one more in about the time that an empty one does.
func TestAttackFullStore(t *testing.T) {
	t.Parallel()
	self, err := peer.IDFromPrivateKey(p2ptest.Key(1))
	if err != nil {
		t.Fatal(err)
	}
	const records, size = 40_000, 200
	s := newHeld(self, map[string]int64{"a": records * size})
	value, n := make([]byte, size), 0
	put := func(count int) time.Duration {
		begun := time.Now()
		for range count {
			n++
			k := datastore.NewKey("/a/" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(fmt.Append(nil, n)))
			if err := s.Put(t.Context(), k, value); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(begun) / time.Duration(count)
	}
	empty := put(records)
	full := put(100)
	for range 4 { // the best of some, on a machine that does other things too
		full = min(full, put(100))
	}
	t.Logf("a record into a store that fills: %v; into one with %d records: %v", empty, records, full)
	if full > 200*empty { // a scan of them all costs thousands of times as much
		t.Errorf("a record costs %v in a full store, %v before", full, empty)
	}
	if d := s.kinds["a"]; s.bytes["a"] != records*size || len(d.order) != records || len(d.byKey) != records {
		t.Errorf("%d bytes, %d in the heap, %d by key", s.bytes["a"], len(d.order), len(d.byKey))
	}
}
