package guardian_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/node/buyer/guardian/wards"
)

var errNotThere = errors.New("the wage is not on chain")

// TestAttackGuardianFiles: anybody could engage a peer for nothing and had it fetch 4 GiB for each job, for a month. A
// guardian that is paid fetches nothing before its wage is on chain.
func TestAttackGuardianFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var there atomic.Bool
		w := newWorld(t, 3, 2, func(w *world) {
			guardiantest.Pay(w.charter, w.members)
			w.backed = func(_ context.Context, _ wards.Ward, state []byte) error {
				if string(state) != "where" || !there.Load() {
					return errNotThere
				}
				return nil
			}
		})
		files := func() (n int) {
			for _, x := range w.nodes[1:] {
				x.mu.Lock()
				n += len(x.has)
				x.mu.Unlock()
			}
			return n
		}
		p := w.owner()
		guardiantest.Must(t, p.Engage(t.Context(), w.engagement()))
		stop := w.beating(p)
		guardiantest.Must(t, p.Beat(t.Context(), &guardian.State{Version: 1, Bytes: []byte("where"), Files: []guardian.File{guardiantest.FileOf("part")}}))
		time.Sleep(30 * time.Second)
		e := w.engagement()
		e.Complete = true
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := p.Engage(ctx, e); err == nil || files() != 0 {
			t.Errorf("unpaid guardians have %d files; they say %v", files(), err)
		}
		there.Store(true)
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := p.Engage(ctx, e); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := files(); n != 6 {
			t.Errorf("paid guardians have %d files, want the job's and its state's", n)
		}
		stop()
	})
}
