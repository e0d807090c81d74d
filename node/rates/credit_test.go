package rates

import (
	"testing"
	"time"
)

// However many keys there are, they have so many units together; one that proved right gives its unit back.
func TestCredit(t *testing.T) {
	t.Parallel()
	const most = 16
	c := NewCredit[int](most, time.Hour)
	now := time.UnixMilli(1_700_000_000_000)
	take := func(from int) (taken int) {
		for i := range 100 {
			if c.Take(from+i, now) {
				taken++
			}
		}
		return taken
	}
	if n := take(0); n != most || !c.Take(0, now) || !c.Has(0) || c.Has(99) {
		t.Fatalf("%d of 100 took one", n)
	}
	c.Return(0, true)
	c.Return(1, false)
	if !c.Take(200, now) || c.Take(201, now) || c.Has(0) {
		t.Error("one that proved right gives one unit back, one that did not gives none")
	}
	now = now.Add(time.Hour)
	if n := take(300); n != most {
		t.Errorf("%d took one an hour later", n)
	}
}
