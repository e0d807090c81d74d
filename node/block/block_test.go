package block

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

func key(n byte) sign.Key { return sign.NewPrivate([32]byte{n}).Key() }

func TestList(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	l, err := Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1000, 0).UTC()
	if err := l.Add(t.Context(), Entry{Peer: key(1), Roles: []Role{Provider, Buyer, Provider}, Reason: "slow", At: at}); err != nil {
		t.Fatal(err)
	}
	if err := l.Add(t.Context(), Entry{Peer: key(2), Roles: []Role{Buyer}, At: at.Add(time.Second)}); err != nil {
		t.Fatal(err)
	}
	if err := l.Remove(t.Context(), key(3)); !errors.Is(err, ErrNotListed) {
		t.Error(err)
	}
	l, err = Open(t.Context(), st) // the next process
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p      sign.Key
		r      Role
		reason string
		want   bool
	}{{key(1), Provider, "slow", true}, {key(1), Buyer, "slow", true}, {key(2), Provider, "", false}, {key(2), Buyer, "", true}, {key(3), Buyer, "", false}} {
		if reason, got := l.Blocked(c.p, c.r); got != c.want || reason != c.reason {
			t.Errorf("%s as %s: %v, %q", c.p.Short(), c.r, got, reason)
		}
	}
	if e := l.Entries(); len(e) != 2 || e[0].Peer != key(2) || len(e[1].Roles) != 2 {
		t.Errorf("%+v", e)
	}
	if err := l.Remove(t.Context(), key(1)); err != nil {
		t.Error(err)
	}
	if _, got := l.Blocked(key(1), Provider); got {
		t.Error("what was removed is still blocked")
	}
}

func TestBadEntries(t *testing.T) {
	t.Parallel()
	l, err := Open(t.Context(), store.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []Entry{
		{Roles: []Role{Buyer}}, {Peer: key(1)}, {Peer: key(1), Roles: []Role{"king"}},
		{Peer: key(1), Roles: []Role{Buyer}, Reason: strings.Repeat("x", MaxReason+1)}, {Peer: key(1), Roles: []Role{Buyer}, Reason: "\xff"},
	} {
		if err := l.Add(t.Context(), e); !errors.Is(err, ErrEntry) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

func FuzzEntry(f *testing.F) {
	b, err := Entry{Peer: key(1), Roles: []Role{Buyer, Provider}, Reason: "x", At: time.Unix(1, 0).UTC()}.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Unmarshal(data)
		if err != nil {
			return
		}
		b, err := e.Marshal()
		if err != nil {
			t.Skip() // times that JSON cannot write
		}
		again, err := Unmarshal(b)
		if err != nil || !again.At.Equal(e.At) {
			t.Fatalf("%v: %+v", err, again)
		}
		again.At = e.At
		if !reflect.DeepEqual(e, again) {
			t.Fatalf("%+v came back as %+v", e, again)
		}
	})
}
