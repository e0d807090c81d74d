package audit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// slow is a journal whose writes wait.
type slow struct {
	store.Store
	begun, open chan struct{}
}

func (s slow) Write(ctx context.Context, puts ...store.Put) error {
	s.begun <- struct{}{}
	<-s.open
	return s.Store.Write(ctx, puts...)
}

// Readers of a shelf do not wait for the journal, and its writers take turns.
func TestReadWhileWriting(t *testing.T) {
	t.Parallel()
	journal := slow{store.NewMemory(), make(chan struct{}), make(chan struct{})}
	shelf, err := OpenShelf(t.Context(), journal)
	if err != nil {
		t.Fatal(err)
	}
	missed := Result{
		Unit: Claim{ID: market.UnitID{1}, Class: "cpu", Resources: audittest.Small}, Err: errors.New("no committee"),
	}
	written := make(chan error, 2)
	put := func() { written <- shelf.Put(t.Context(), missed, 7, time.Now()) }
	go put()
	<-journal.begun
	go put()
	if len(shelf.Counts()) != 0 || len(shelf.delisted()) != 0 {
		t.Error("an audit counts before it is journalled")
	}
	select {
	case <-journal.begun:
		t.Error("two writes at a time")
	default:
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := shelf.Put(ended, missed, 7, time.Now()); !errors.Is(err, context.Canceled) {
		t.Errorf("a writer whose context ended: got %v", err)
	}
	journal.open <- struct{}{}
	<-journal.begun
	journal.open <- struct{}{}
	for range 2 {
		if err := <-written; err != nil {
			t.Error(err)
		}
	}
	if n := len(shelf.Counts()); n != 1 {
		t.Errorf("%d outcomes, want 1", n)
	}
}
