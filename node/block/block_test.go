package block

import (
	"errors"
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

// An entry that Add cannot have written is refused.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"of another peer": `{"peer":"` + key(2).String() + `","roles":["buyer"],"at":"2026-01-01T00:00:00Z"}`,
		"without roles":   `{"peer":"` + key(1).String() + `","roles":[],"at":"2026-01-01T00:00:00Z"}`,
		"newer":           `{"peer":"` + key(1).String() + `","roles":["buyer"],"at":"2026-01-01T00:00:00Z","until":1}`,
		"empty":           ``,
	} {
		st := store.NewMemory()
		if err := st.Write(t.Context(), store.Put{Kind: entries.Kind(), Key: key(1).String(), Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), st); err == nil {
			t.Errorf("an entry %s is read", name)
		}
	}
}
