package buyer

import (
	"testing"

	"github.com/starling-network/starling/node/store"
)

func TestRetiredTraceIsReadFromTheJournal(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tr := newTrace(st, "j1")
	tr.add(Step{Kind: StepOrdered}, Step{Kind: StepLeased}, Step{Kind: StepEnded})
	puts, upTo := tr.puts()
	if err := st.Write(t.Context(), puts...); err != nil {
		t.Fatal(err)
	}
	tr.wrote(upTo)
	tr.retire()
	tr.add(Step{Kind: StepPaid}) // too late
	for _, c := range []struct {
		after int
		want  []StepKind
	}{{0, []StepKind{StepOrdered, StepLeased, StepEnded}}, {2, []StepKind{StepEnded}}, {3, nil}, {9, nil}, {-1, []StepKind{StepOrdered, StepLeased, StepEnded}}} {
		steps, _, err := tr.after(c.after)
		if err != nil || len(steps) != len(c.want) {
			t.Fatalf("after %d: %v, %v, want %v", c.after, steps, err, c.want)
		}
		for i, s := range steps {
			if s.Kind != c.want[i] {
				t.Errorf("after %d: step %d is %s, want %s", c.after, i, s.Kind, c.want[i])
			}
		}
	}
	if puts, _ := tr.puts(); len(puts) > 0 {
		t.Errorf("a retired trace has %d steps to journal", len(puts))
	}
}

func TestTraceIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	old := newTrace(st, "j1")
	old.add(Step{Kind: StepOrdered})
	puts, _ := old.puts()
	if err := st.Write(t.Context(), puts...); err != nil {
		t.Fatal(err)
	}
	tr := newTrace(st, "j1")
	if err := tr.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr.add(Step{Kind: StepLeased})
	if puts, _ := tr.puts(); len(puts) != 1 || puts[0].Key != traceKey("j1", 1) {
		t.Fatalf("to journal: %v", puts)
	}
}
