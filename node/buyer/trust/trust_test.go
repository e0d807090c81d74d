package trust

import (
	"context"
	"errors"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/replica"
)

func verdict(right int, wrong []int, outputs ...byte) replica.Verdict {
	v := replica.Verdict{Right: right, Wrong: wrong}
	for i, o := range outputs {
		by := replica.Party{Provider: sign.Key{byte(i + 1)}}
		v.Results = append(v.Results, replica.Committed{Party: by, Output: sign.Hash{o}})
	}
	return v
}

func load(t *testing.T, st store.Store) *Book {
	t.Helper()
	b, err := Load(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Records change with verdicts that have a right result, and are the same after a restart.
func TestJudge(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	judge := func(v replica.Verdict) {
		t.Helper()
		b := load(t, st)
		if err := b.Judge(t.Context(), v, func(puts []store.Put) error { return st.Write(t.Context(), puts...) }); err != nil {
			t.Fatal(err)
		}
		again := load(t, st)
		for _, r := range v.Results {
			if again.Of(r.Provider) != b.Of(r.Provider) {
				t.Errorf("%s: %+v in the journal, %+v known", r.Provider, again.Of(r.Provider), b.Of(r.Provider))
			}
		}
	}
	for range 3 {
		judge(verdict(0, nil, 1, 1))
	}
	judge(verdict(-1, nil, 1, 2)) // undecided
	judge(verdict(-1, nil, 1))    // not drawn
	judge(verdict(1, []int{0}, 9, 1, 1))
	b := load(t, st)
	for i, want := range []replica.Trust{{Wrong: 1}, {Valid: 4}, {Valid: 1}, {}} {
		if got := b.Of(sign.Key{byte(i + 1)}); got != want {
			t.Errorf("provider %d: %+v, want %+v", i+1, got, want)
		}
	}
}

// A verdict that the journal does not take changes nothing.
func TestJudgeFails(t *testing.T) {
	t.Parallel()
	b := load(t, store.NewMemory())
	if err := b.Judge(t.Context(), verdict(0, nil, 1), func([]store.Put) error { return store.ErrFull }); !errors.Is(err, store.ErrFull) {
		t.Errorf("%v, want %v", err, store.ErrFull)
	}
	if got := b.Of(sign.Key{1}); got != (replica.Trust{}) {
		t.Errorf("%+v is known", got)
	}
}

// A full book keeps its records up to date, and takes no further providers.
func TestFull(t *testing.T) {
	t.Parallel()
	b := load(t, store.NewMemory())
	for i := range maxProviders - 3 {
		b.records[sign.Key{byte(i), byte(i >> 8), 1, 1}] = replica.Trust{Valid: 1}
	}
	for range 2 {
		if err := b.Judge(t.Context(), verdict(0, nil, 1, 1, 1, 1, 1), func(puts []store.Put) error {
			if len(puts) != 3 {
				t.Errorf("the records of %d providers change, want 3", len(puts))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.records); n != maxProviders {
		t.Errorf("%d records, want %d", n, maxProviders)
	}
}

// Each malformed record is an error.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "{}x", `{"valid":1001}`, `{"valid":-1}`, `{"other":1}`} {
		st := store.NewMemory()
		put := store.Put{Kind: records.Kind(), Key: sign.Key{1}.String(), Value: []byte(bad)}
		if err := st.Write(t.Context(), put); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(t.Context(), st); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}

// A verdict that is journalled holds up neither readers nor, beyond its context, another verdict.
func TestJudgeWaits(t *testing.T) {
	t.Parallel()
	b := load(t, store.NewMemory())
	begun, open, judged := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		judged <- b.Judge(t.Context(), verdict(0, nil, 1), func([]store.Put) error {
			close(begun)
			<-open
			return nil
		})
	}()
	<-begun
	if got := b.Of(sign.Key{1}); got != (replica.Trust{}) {
		t.Errorf("%+v is known before it is journalled", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := b.Judge(ctx, verdict(0, nil, 1), func([]store.Put) error { return errors.New("two verdicts at a time") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	close(open)
	if err := <-judged; err != nil {
		t.Error(err)
	}
	if got := b.Of(sign.Key{1}); got != (replica.Trust{Valid: 1}) {
		t.Errorf("%+v is known after it", got)
	}
}
