package guardian

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// pay gives each guardian of a charter a wage.
func pay(c Charter, members []Member) {
	for i := range members {
		members[i].Wage = &market.LeaseCore{
			Version: market.LeaseVersion, Units: 1, Order: market.OrderID{2}, Buyer: c.Buyer, Provider: members[i].Key, Payout: sign.Key{7},
			UnitsRoot: market.UnitsRoot([]market.UnitID{{8}}), Terms: c.Job, VoucherKeys: c.Keys.Hash(), Rate: 1, Cap: 1, Start: firstSlot,
			ActivateBefore: firstSlot + 999, End: firstSlot + 1000,
		}
	}
}

var errNotThere = errors.New("the wage is not on chain")

// TestAttackGuardianFiles: anybody could engage a peer for nothing and had it fetch 4 GiB for each job, for a month. A
// guardian that is paid fetches nothing before its wage is on chain.
func TestAttackGuardianFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var there atomic.Bool
		w := newWorld(t, 3, 2, func(w *world) {
			pay(w.charter, w.members)
			w.backed = func(_ context.Context, _ Ward, state []byte) error {
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
		must(t, p.Engage(t.Context(), w.engagement()))
		stop := w.beating(p)
		must(t, p.Beat(t.Context(), &State{Version: 1, Bytes: []byte("where"), Files: []File{fileOf("part")}}))
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

// TestAttackGuardiansUnpaid: engagements whose wages are not on chain have half of a guardian's places, and not for
// longer than an hour, also if it restarts.
func TestAttackGuardiansUnpaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base, members := charterOf(t, 3, 2)
		disk := store.NewMemory()
		start := func() *Service {
			s, err := alone(t, network, base, disk)
			must(t, err)
			s.cfg.Policy.MaxJobs = 16
			s.cfg.Backed = func(context.Context, Ward, []byte) error { return errNotThere }
			return s
		}
		s := start()
		engage := func(i int) error {
			c := base
			c.Owner, c.Job = named(fmt.Sprint("owner", i)).Key(), sign.Sum([]byte(fmt.Sprint("job", i)))
			pay(c, members)
			req := engaging(t, network, c, members)
			req.GetEngage().UntilMillis += uint64((50 * time.Minute).Milliseconds())
			_, err := s.answer(t.Context(), c.Owner, req)
			return err
		}
		for i := range 8 {
			must(t, engage(i))
		}
		if err := engage(8); !refused(err, CodeFull) {
			t.Errorf("the ninth of 16: %v", err)
		}
		time.Sleep(30 * time.Minute)
		s = start()
		if err := engage(9); !refused(err, CodeFull) {
			t.Errorf("after a restart: %v", err)
		}
		time.Sleep(31 * time.Minute)
		for _, w := range s.all() {
			w.mu.Lock()
			do := s.due(w)
			w.mu.Unlock()
			must(t, do(t.Context(), w))
		}
		if n := len(s.all()); n != 0 {
			t.Errorf("an hour later %d are guarded still", n)
		}
	})
}
