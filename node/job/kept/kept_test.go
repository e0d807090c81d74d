package kept

import (
	"testing"
	"time"

	"github.com/starling-network/starling/node/job/span"
)

// Copies are held to their limits, and have a price where there are prices.
func TestCheck(t *testing.T) {
	t.Parallel()
	ok := Copies{Count: 3, For: span.Span(24 * time.Hour), MaxPrice: 5}
	for field, change := range map[string]func(*Copies){
		"none":      func(*Copies) {},
		".count":    func(c *Copies) { c.Count = MaxCount + 1 },
		".for":      func(c *Copies) { c.For = span.Span(MaxFor + time.Second) },
		".maxPrice": func(c *Copies) { c.MaxPrice = 0 },
	} {
		c := ok
		change(&c)
		got := c.Check(1, false)
		if want := field != "none"; want != (len(got) == 1) || want && got[0].Field != field {
			t.Errorf("%s: %+v", field, got)
		}
	}
	zero := Copies{}
	if got := zero.Check(0, true); len(got) != 3 {
		t.Errorf("none of it: %+v", got)
	}
	if got := ok.Check(1, true); len(got) != 1 || got[0].Field != ".maxPrice" {
		t.Errorf("a price on a free network: %+v", got)
	}
	if got := (*Copies)(nil).Check(0, false); got != nil {
		t.Errorf("no copies: %+v", got)
	}
}
