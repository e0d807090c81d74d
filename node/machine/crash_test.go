package machine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/store"
)

// Power is cut before and after every write of a scenario. After the next start everything ends as without a cut: each
// request was taken once, and the counterparty has each amount once.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	want, _ := crashRun(t, 0, store.Before)
	for _, k := range []string{"a", "b", "c"} {
		if len(want[k]) != 5 {
			t.Fatalf("without a crash the counterparty has %v", want)
		}
	}
	for _, when := range []store.When{store.Before, store.After} {
		n := 1
		for ; ; n++ { // batches vary, so that the number of writes does
			got, crashed := crashRun(t, n, when)
			if !slices.EqualFunc(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), func(x, y string) bool {
				return x == y && slices.Equal(want[x], got[y])
			}) {
				t.Errorf("crash at write %d, side %d: the counterparty has %v, want %v", n, when, got, want)
			}
			if !crashed {
				break
			}
		}
		t.Logf("%d crashes on side %d", n-1, when)
		if n < 15 {
			t.Errorf("only %d writes", n-1)
		}
	}
}

// crashRun runs the scenario with a cut at the n-th write, and returns the amounts that the counterparty has, sorted.
func crashRun(t *testing.T, n int, when store.When) (got map[string][]int, crashed bool) {
	synctest.Test(t, func(t *testing.T) {
		memory := store.NewMemory()
		other := &peer{t: t, disk: memory, got: map[string]map[int]int{}}
		power := store.NewCrashing(memory)
		power.CrashAt(n, when)
		var mu sync.Mutex // of p and power
		p := start(t, power, &shell{peer: other})
		add := func(p *process) {
			for _, k := range []string{"a", "b", "c"} {
				p.Add(k, ledger{})
			}
		}
		add(p)
		// current returns the process, which it starts again after a cut.
		current := func() *process {
			mu.Lock()
			defer mu.Unlock()
			select {
			case <-power.Crashed():
				crashed = true
				if err := p.stop(); err == nil {
					t.Error("a runner ended by a cut returns no error")
				}
				power = store.NewCrashing(memory)
				p = start(t, power, &shell{peer: other})
				add(p)
			default:
			}
			return p
		}
		var wg sync.WaitGroup
		for _, k := range []string{"a", "b", "c"} {
			wg.Go(func() {
				for i := range 5 {
					for {
						_, err := current().Ask(t.Context(), k, request(k, i))
						if err == nil {
							break
						}
						if !errors.Is(err, ErrStopped) {
							t.Errorf("asked: %v", err)
						}
						time.Sleep(100 * time.Millisecond)
					}
					time.Sleep(700 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		for range 30 {
			time.Sleep(time.Second)
			current()
		}
		for _, k := range []string{"a", "b", "c"} {
			m, _, err := current().Get(k)
			if err != nil || !m.Done() || len(m.Amounts) != 5 {
				t.Errorf("machine %s is %+v, %v", k, m, err)
			}
		}
		if err := current().stop(); err != nil {
			t.Error(err)
		}
		got = map[string][]int{}
		for k, of := range other.got {
			got[k] = slices.Sorted(maps.Values(of))
		}
	})
	return got, crashed
}

func request(k string, i int) add { return add{fmt.Sprint(k, i), 10*i + int(k[0])} }
