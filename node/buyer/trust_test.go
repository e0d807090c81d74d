package buyer

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/replica"
)

func verdict(right int, wrong []int, outputs ...byte) replica.Verdict {
	v := replica.Verdict{Right: right, Wrong: wrong}
	for i, o := range outputs {
		v.Results = append(v.Results, replica.Committed{Party: replica.Party{Provider: sign.Key{byte(i + 1)}}, Output: sign.Hash{o}})
	}
	return v
}

// Records change with verdicts that have a right result, and are the same after a restart.
func TestTrusts(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	judge := func(v replica.Verdict) {
		tr, err := loadTrusts(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		changed, puts, err := tr.after(v)
		if err == nil && len(puts) > 0 {
			err = st.Write(t.Context(), puts...)
		}
		if err != nil {
			t.Fatal(err)
		}
		tr.change(changed)
		again, err := loadTrusts(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		for k, r := range changed {
			if again.of(k) != r || tr.of(k) != r {
				t.Errorf("%s: %+v in the journal, %+v changed, %+v known", k.Short(), again.of(k), r, tr.of(k))
			}
		}
	}
	for range 3 {
		judge(verdict(0, nil, 1, 1))
	}
	judge(verdict(-1, nil, 1, 2)) // nobody knows who is right
	judge(verdict(-1, nil, 1))    // not drawn
	judge(verdict(1, []int{0}, 9, 1, 1))
	tr, err := loadTrusts(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []replica.Trust{{Wrong: 1}, {Valid: 4}, {Valid: 1}, {}} {
		if got := tr.of(sign.Key{byte(i + 1)}); got != want {
			t.Errorf("provider %d: %+v, want %+v", i+1, got, want)
		}
	}
	for i := range maxTrusted {
		tr.m[sign.Key{byte(i), byte(i >> 8), 1, 1}] = replica.Trust{Valid: 1}
	}
	if changed, _, err := tr.after(verdict(0, nil, 1, 1, 1, 1, 1)); err != nil || len(changed) != 3 {
		t.Errorf("without room the records of %d providers change, %v", len(changed), err)
	}
	for _, bad := range []string{"", "{}x", `{"valid":1001}`, `{"valid":-1}`, `{"other":1}`} {
		if _, err := unmarshalTrust([]byte(bad)); !errors.Is(err, errTrust) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzTrust(f *testing.F) {
	f.Add([]byte(`{"valid":12}`))
	f.Add([]byte(`{"valid":1000,"wrong":3}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := unmarshalTrust(b)
		if err != nil {
			if !errors.Is(err, errTrust) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		once, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := unmarshalTrust(once); err != nil || again != r {
			t.Fatalf("%+v, then %+v, %v", r, again, err)
		}
	})
}
