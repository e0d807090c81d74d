package audit

import (
	"bytes"
	"testing"
	"time"

	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// Members who look find the fault of a canary, and nothing can be held against them. Whoever passes it is proven not to have looked,
// by a proof that stands for itself.
func TestCanary(t *testing.T) {
	t.Parallel()
	w := newWorld(9, time.Now)
	p := w.prover()
	p.plant = flip
	results, err := p.Audit(t.Context(), units(1))
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Err == nil {
		t.Fatal("a canary passes")
	}
	c, err := found(results[0])
	if err != nil || len(c.Looked) != audit.Committee || len(c.Lies) != 0 {
		t.Fatalf("%d looked, %d are called liars: %v", len(c.Looked), len(c.Lies), err)
	}
	lazy := &results[0].Record.Verdicts[2]
	lazy.Outcome = audit.Pass
	for name := range 9 {
		if k := audittest.Key("member" + string(rune('0'+name))); k.Key() == lazy.Member {
			if lazy.Signature, err = lazy.Sign(audittest.Domain(), k); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c, err = found(results[0]); err != nil || len(c.Looked) != audit.Committee-1 || len(c.Lies) != 1 {
		t.Fatalf("%d looked, %d are called liars: %v", len(c.Looked), len(c.Lies), err)
	}
	b := c.Lies[0].Marshal()
	l, err := audit.UnmarshalLie(b)
	if err != nil || !bytes.Equal(l.Marshal(), b) {
		t.Fatal(err)
	}
	if err := l.Check(audittest.Domain()); err != nil || l.Kind != audit.FalsePass || l.Liar() != lazy.Member {
		t.Errorf("%s of %s: %v", l.Kind, l.Liar().Short(), err)
	}
}
