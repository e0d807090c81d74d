package journal_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
	"pgregory.net/rapid"
)

type account struct {
	Name    string `json:"name"`
	Balance int64  `json:"balance,omitempty"`
}

type place uint16

var (
	accounts = journal.Define[string, account]("test account")
	places   = journal.Define[place, []string]("test place")
	numbers  = journal.Define[uint64, account]("test number")
	keys     = journal.Define[sign.Key, account]("test key")
	shapes   = journal.Define[string, float64]("test shape")
	signed   = journal.Define[int, int]("test signed")
)

// counting counts writes.
type counting struct {
	*store.Memory
	writes int
}

func (c *counting) Write(ctx context.Context, puts ...store.Put) error {
	c.writes++
	return c.Memory.Write(ctx, puts...)
}

func all[K comparable, V any](t *testing.T, s journal.Store, table journal.Table[K, V], prefix string) (out []string) {
	t.Helper()
	err := table.List(t.Context(), s, prefix, func(k K, v V) error {
		out = append(out, fmt.Sprintf("%v=%v", k, v))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A batch is one write of all its tables, with each record once.
func TestBatch(t *testing.T) {
	t.Parallel()
	s := &counting{Memory: store.NewMemory()}
	var b journal.Batch
	if err := b.Commit(t.Context(), s); err != nil || s.writes != 0 {
		t.Errorf("an empty batch: %d writes, %v", s.writes, err)
	}
	for i := range 30 {
		accounts.Put(&b, "ann", account{"Ann", int64(i)})
	}
	accounts.Put(&b, "bob", account{Name: "Bob"})
	accounts.Delete(&b, "bob")
	accounts.Delete(&b, "nobody")
	places.Put(&b, 7, []string{"x", "y"})
	if b.Len() != 4 {
		t.Errorf("the batch has %d records, want 4", b.Len())
	}
	if err := b.Commit(t.Context(), s); err != nil || s.writes != 1 {
		t.Fatalf("%d writes, %v", s.writes, err)
	}
	if got, want := all(t, s, accounts, ""), []string{"ann={Ann 29}"}; !slices.Equal(got, want) {
		t.Errorf("accounts are %v, want %v", got, want)
	}
	if got, want := all(t, s, places, ""), []string{"7=[x y]"}; !slices.Equal(got, want) {
		t.Errorf("places are %v, want %v", got, want)
	}
	value, err := s.Get(t.Context(), "test account", "ann")
	if want := `{"name":"Ann","balance":29}`; err != nil || string(value) != want {
		t.Errorf("the record is %s, %v, want %s", value, err, want)
	}
}

// Nothing of a batch is written if one of its records cannot be.
func TestBatchInvalid(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]func(*journal.Batch){
		"value":       func(b *journal.Batch) { shapes.Put(b, "s", math.NaN()) },
		"type of key": func(b *journal.Batch) { signed.Put(b, -1, 1) },
		"empty key":   func(b *journal.Batch) { accounts.Put(b, "", account{}) },
		"long key":    func(b *journal.Batch) { accounts.Delete(b, strings.Repeat("k", store.MaxKey+1)) },
		"long value":  func(b *journal.Batch) { accounts.Put(b, "k", account{Name: strings.Repeat("v", store.MaxValue)}) },
	} {
		s := store.NewMemory()
		var b journal.Batch
		accounts.Put(&b, "ann", account{Name: "Ann"})
		add(&b)
		accounts.Put(&b, "bob", account{Name: "Bob"})
		if err := b.Commit(t.Context(), s); !errors.Is(err, store.ErrRecord) {
			t.Errorf("%s: %v, want ErrRecord", name, err)
		}
		if got := all(t, s, accounts, ""); len(got) > 0 {
			t.Errorf("%s: written were %v", name, got)
		}
	}
}

// A kind has one table.
func TestDefine(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"test account", "", strings.Repeat("k", store.MaxKind+1)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("kind %.20q is defined", kind)
				}
			}()
			journal.Define[string, int](kind)
		}()
	}
	if accounts.Kind() != "test account" {
		t.Errorf("the kind is %q", accounts.Kind())
	}
}

// Records that this version cannot have written are refused, whatever is wrong with them.
func TestListRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, key, value, want string }{
		{"test account", "ann", `{"name":"Ann","limit":3}`, `unknown field "limit"`},
		{"test account", "ann", `{"name":"Ann"}{}`, "data after the value"},
		{"test account", "ann", `{"name":"Ann"`, "unexpected EOF"},
		{"test account", "ann", ``, "EOF"},
		{"test account", "ann", `{"name":3}`, "cannot unmarshal"},
		{"test place", "7", `[]`, `want "00000000000000000007"`},
		{"test place", "00000000000000065536", `[]`, "out of range"},
		{"test place", "x", `[]`, "invalid syntax"},
		{"test key", "x", `{"name":"Ann"}`, "test key x"},
	} {
		s := store.NewMemory()
		if err := s.Write(t.Context(), store.Put{Kind: c.kind, Key: c.key, Value: []byte(c.value)}); err != nil {
			t.Fatal(err)
		}
		var err error
		switch c.kind {
		case accounts.Kind():
			err = accounts.List(t.Context(), s, "", func(string, account) error { return nil })
		case places.Kind():
			err = places.List(t.Context(), s, "", func(place, []string) error { return nil })
		case keys.Kind():
			err = keys.List(t.Context(), s, "", func(sign.Key, account) error { return nil })
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.kind+" "+c.key) {
			t.Errorf("%s %s %s: %v, want %s", c.kind, c.key, c.value, err, c.want)
		}
	}
	s, stop := store.NewMemory(), errors.New("enough")
	var b journal.Batch
	accounts.Put(&b, "ann", account{})
	if err := b.Commit(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := accounts.List(t.Context(), s, "", func(string, account) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the caller's error: %v", err)
	}
}

// Records are listed as they were put, in the order of their keys: integers as numbers, text by prefix.
func TestListOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := store.NewMemory()
		var b journal.Batch
		want := map[uint64]account{}
		for range rapid.IntRange(1, 20).Draw(rt, "records") {
			n := rapid.Uint64().Draw(rt, "key") >> rapid.IntRange(0, 63).Draw(rt, "shift")
			want[n] = account{rapid.String().Draw(rt, "name"), rapid.Int64().Draw(rt, "balance")}
			numbers.Put(&b, n, want[n])
		}
		key := sign.Key(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "bytes"))
		keys.Put(&b, key, account{Name: "key"})
		accounts.Put(&b, "a/1", account{})
		accounts.Put(&b, "b/1", account{})
		if err := b.Commit(t.Context(), s); err != nil {
			rt.Fatal(err)
		}
		got, last := map[uint64]account{}, uint64(0)
		err := numbers.List(t.Context(), s, "", func(n uint64, a account) error {
			if n < last {
				rt.Errorf("%d comes after %d", n, last)
			}
			got[n], last = a, n
			return nil
		})
		if err != nil || !reflect.DeepEqual(got, want) {
			rt.Errorf("listed are %v, %v, want %v", got, err, want)
		}
		if got := all(t, s, keys, ""); !slices.Equal(got, []string{fmt.Sprintf("%v={key 0}", key)}) {
			rt.Errorf("keys are %v", got)
		}
		if got := all(t, s, accounts, "a/"); !slices.Equal(got, []string{"a/1={ 0}"}) {
			rt.Errorf("under the prefix are %v", got)
		}
	})
}

// Records can be read one by one, and encoded ones join those of tables in one write.
func TestGetAndAdd(t *testing.T) {
	t.Parallel()
	s := &counting{Memory: store.NewMemory()}
	put, err := accounts.Encode("ann", account{Name: "Ann"})
	if err != nil {
		t.Fatal(err)
	}
	gone, err := places.Encode(3, []string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	var b journal.Batch
	places.Put(&b, 3, []string{"y"})
	accounts.Put(&b, "bob", account{Name: "Bob"})
	gone.Value = nil
	b.Add(put, gone)
	if err := b.Commit(t.Context(), s); err != nil || s.writes != 1 {
		t.Fatalf("%d writes, %v", s.writes, err)
	}
	if got, want := all(t, s, accounts, ""), []string{"ann={Ann 0}", "bob={Bob 0}"}; !slices.Equal(got, want) {
		t.Errorf("accounts are %v, want %v", got, want)
	}
	if got, err := accounts.Get(t.Context(), s, "ann"); err != nil || got.Name != "Ann" {
		t.Errorf("read %+v, %v", got, err)
	}
	if _, err := places.Get(t.Context(), s, 3); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a record that was removed: %v", err)
	}
	if _, err := signed.Get(t.Context(), s, -1); err == nil {
		t.Error("a key that cannot be encoded is read")
	}
	if _, err := signed.Encode(-1, 1); !errors.Is(err, store.ErrRecord) {
		t.Errorf("a key that cannot be encoded: %v", err)
	}
	if _, err := shapes.Encode("s", math.NaN()); !errors.Is(err, store.ErrRecord) {
		t.Errorf("a value that cannot be encoded: %v", err)
	}
	if err := s.Memory.Write(t.Context(), store.Put{Kind: "test account", Key: "ann", Value: []byte(`{"limit":3}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := accounts.Get(t.Context(), s, "ann"); err == nil || !strings.Contains(err.Error(), "reading test account ann") {
		t.Errorf("a record of a newer version: %v", err)
	}
}

// One record is written and removed by a write of its own; one that cannot be encoded is not written.
func TestWriteAndRemove(t *testing.T) {
	t.Parallel()
	s := &counting{Memory: store.NewMemory()}
	if err := accounts.Write(t.Context(), s, "ann", account{Name: "Ann"}); err != nil || s.writes != 1 {
		t.Fatalf("%d writes, %v", s.writes, err)
	}
	if got, err := accounts.Get(t.Context(), s, "ann"); err != nil || got.Name != "Ann" {
		t.Errorf("read %+v, %v", got, err)
	}
	for range 2 { // the second time it is not there
		if err := accounts.Remove(t.Context(), s, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := accounts.Get(t.Context(), s, "ann"); !errors.Is(err, store.ErrNotFound) || s.writes != 3 {
		t.Errorf("%d writes, %v", s.writes, err)
	}
	if err := shapes.Write(t.Context(), s, "s", math.NaN()); !errors.Is(err, store.ErrRecord) || s.writes != 3 {
		t.Errorf("a value that cannot be encoded: %d writes, %v", s.writes, err)
	}
	if err := signed.Remove(t.Context(), s, -1); !errors.Is(err, store.ErrRecord) || s.writes != 3 {
		t.Errorf("a key that cannot be encoded: %d writes, %v", s.writes, err)
	}
}

// Raw records keep their bytes, and share no kind with a table.
func TestRaw(t *testing.T) {
	t.Parallel()
	s := store.NewMemory()
	raw := journal.DefineRaw("test raw")
	if raw.Kind() != "test raw" {
		t.Errorf("kind %q", raw.Kind())
	}
	if err := s.Write(t.Context(), raw.Encode("b/2", []byte{0, 255}), raw.Encode("b/1", []byte("{")), raw.Encode("c", nil)); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := raw.List(t.Context(), s, "b/", func(key string, value []byte) error {
		got = append(got, fmt.Sprintf("%s=%q", key, value))
		return nil
	})
	if want := []string{`b/1="{"`, `b/2="\x00\xff"`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if v, err := raw.Get(t.Context(), s, "b/1"); err != nil || string(v) != "{" {
		t.Errorf("read %q, %v", v, err)
	}
	var b journal.Batch
	raw.Put(&b, "a", []byte("x"))
	raw.Delete(&b, "b/1")
	if err := b.Commit(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	_, gone := raw.Get(t.Context(), s, "b/1")
	if v, err := raw.Get(t.Context(), s, "a"); err != nil || string(v) != "x" || !errors.Is(gone, store.ErrNotFound) {
		t.Errorf("read %q, %v, and of a removed record %v", v, err, gone)
	}
	defer func() {
		if recover() == nil {
			t.Error("a kind is defined twice")
		}
	}()
	journal.DefineRaw("test account")
}

// Clear removes the records under a prefix, those too that cannot be read, and no others.
func TestClear(t *testing.T) {
	t.Parallel()
	s := store.NewMemory()
	var b journal.Batch
	for _, k := range []string{"a/1", "a/2", "ab", "b/1"} {
		accounts.Put(&b, k, account{})
	}
	b.Add(store.Put{Kind: accounts.Kind(), Key: "a/3", Value: []byte("{")})
	if err := b.Commit(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	var clear journal.Batch
	if err := accounts.Clear(t.Context(), s, &clear, "a/"); err != nil || clear.Len() != 3 {
		t.Fatalf("%d records, %v", clear.Len(), err)
	}
	if err := clear.Commit(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := all(t, s, accounts, ""); !slices.Equal(got, []string{"ab={ 0}", "b/1={ 0}"}) {
		t.Errorf("left are %v", got)
	}
}
