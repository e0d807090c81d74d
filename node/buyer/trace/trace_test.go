package trace

import (
	"testing"

	"github.com/starling-network/starling/node/store"
)

func TestRetiredTraceIsReadFromTheJournal(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tr := New(st, "j1")
	tr.Add(Step{Kind: Ordered}, Step{Kind: Leased}, Step{Kind: Ended})
	puts, upTo := tr.Pending()
	if err := st.Write(t.Context(), puts...); err != nil {
		t.Fatal(err)
	}
	tr.Written(upTo)
	tr.Retire()
	tr.Add(Step{Kind: Paid}) // too late
	for _, c := range []struct {
		after int
		want  []Kind
	}{{0, []Kind{Ordered, Leased, Ended}}, {2, []Kind{Ended}}, {3, nil}, {9, nil}, {-1, []Kind{Ordered, Leased, Ended}}} {
		steps, _, err := tr.After(c.after)
		if err != nil || len(steps) != len(c.want) {
			t.Fatalf("after %d: %v, %v, want %v", c.after, steps, err, c.want)
		}
		for i, s := range steps {
			if s.Kind != c.want[i] {
				t.Errorf("after %d: step %d is %s, want %s", c.after, i, s.Kind, c.want[i])
			}
		}
	}
	if puts, _ := tr.Pending(); len(puts) > 0 {
		t.Errorf("a retired trace has %d steps to journal", len(puts))
	}
}

func TestTraceIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	old := New(st, "j1")
	old.Add(Step{Kind: Ordered})
	puts, _ := old.Pending()
	if err := st.Write(t.Context(), puts...); err != nil {
		t.Fatal(err)
	}
	tr := New(st, "j1")
	if err := tr.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr.Add(Step{Kind: Leased})
	if puts, _ := tr.Pending(); len(puts) != 1 || puts[0].Key != key("j1", 1) {
		t.Fatalf("to journal: %v", puts)
	}
}
