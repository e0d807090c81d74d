package buyer

import (
	"context"
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/store"
)

// full is a journal on a disk that is full for so many writes.
type full struct {
	store.Store
	left int
}

func (f *full) Write(ctx context.Context, puts ...store.Put) error {
	if f.left--; f.left >= 0 {
		return store.ErrFull
	}
	return f.Store.Write(ctx, puts...)
}

// A lease is void only once the journal has that, and once.
func TestVoidIsJournalledFirst(t *testing.T) {
	t.Parallel()
	journal := &full{Store: store.NewMemory(), left: 2}
	l := &bought{b: &Buyer{cfg: Config{Store: journal}}, id: market.LeaseID{1}}
	for i := range 4 {
		again, err := l.voidOnce(t.Context())
		if (err != nil) != (i < 2) || again != (i == 3) || l.rec.Void != (i >= 2) {
			t.Errorf("attempt %d: again %v, void %v, %v", i, again, l.rec.Void, err)
		}
		b, err := journal.Get(t.Context(), kindLease, l.id.String())
		if has := err == nil && strings.Contains(string(b), `"void":true`); has != l.rec.Void {
			t.Errorf("attempt %d: void %v, in the journal: %v", i, l.rec.Void, has)
		}
	}
}
