package registry

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// lister is a chain that takes its time.
type lister struct {
	mu    sync.Mutex
	all   []account.Provider
	err   error
	took  time.Duration
	asked int
	once  int // at a time
	most  int
}

func (l *lister) Providers(ctx context.Context) ([]account.Provider, error) {
	l.mu.Lock()
	l.asked++
	l.once++
	l.most = max(l.most, l.once)
	took := l.took
	l.mu.Unlock()
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.once--
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return l.all, l.err
}

func (l *lister) set(all []account.Provider, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all, l.err = all, err
}

var errAway = errors.New("the endpoint is away")

func registered(stakes ...uint64) (all []account.Provider) {
	for i, s := range stakes {
		all = append(all, account.Provider{Peer: sign.Key{byte(i + 1)}, Stake: s})
	}
	return all
}

// in runs a test under a clock of its own, with a registry that takes lists for fresh for half a minute.
func in(t *testing.T, test func(t *testing.T, l *lister, r *Registry)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lister{all: registered(5, 7)}
		test(t, l, New(Config{Chain: l, Fresh: 30 * time.Second, Now: time.Now, Log: slog.New(slog.DiscardHandler)}))
	})
}

func TestOneListingForAll(t *testing.T) {
	in(t, func(t *testing.T, l *lister, r *Registry) {
		l.took = time.Second
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if all, err := r.Providers(t.Context()); err != nil || len(all) != 2 {
					t.Errorf("%v, %v", all, err)
				}
			})
		}
		wg.Wait()
		for range 30 { // 29 s
			if _, err := r.Providers(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second - time.Nanosecond)
		}
		if l.asked != 1 {
			t.Errorf("listed %d times", l.asked)
		}
		l.set(registered(1, 2, 3), nil)
		time.Sleep(time.Second)
		if all, err := r.Providers(t.Context()); err != nil || len(all) != 3 || l.asked != 2 || l.most != 1 {
			t.Errorf("%d, %v; listed %d times, %d at once", len(all), err, l.asked, l.most)
		}
	})
}

func TestTheLastListCountsWhileTheChainIsAway(t *testing.T) {
	in(t, func(t *testing.T, l *lister, r *Registry) {
		l.set(nil, errAway)
		for range 3 { // nothing was ever listed
			if _, err := r.Providers(t.Context()); !errors.Is(err, errAway) {
				t.Error(err)
			}
		}
		if l.asked != 1 {
			t.Errorf("asked %d times at once", l.asked)
		}
		time.Sleep(30 * time.Second)
		l.set(registered(5), nil)
		if all, err := r.Providers(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
		l.set(nil, errAway)
		begun := time.Now()
		for time.Since(begun) < Kept {
			if all, err := r.Providers(t.Context()); err != nil || len(all) != 1 {
				t.Fatalf("after %s: %v, %v", time.Since(begun), all, err)
			}
			time.Sleep(15 * time.Second)
		}
		if _, err := r.Providers(t.Context()); !errors.Is(err, ErrStale) || !errors.Is(err, errAway) {
			t.Error(err)
		}
		if most := 2 + int(Kept/(30*time.Second)) + 1; l.asked > most {
			t.Errorf("asked %d times, at most %d", l.asked, most)
		}
		time.Sleep(time.Minute)
		l.set(registered(), nil) // nobody is a list too
		if all, err := r.Providers(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
	})
}

func TestWhoGivesUpSpoilsNothing(t *testing.T) {
	in(t, func(t *testing.T, l *lister, r *Registry) {
		l.took = 5 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 { // one lists, one waits
			wg.Go(func() {
				if _, err := r.Providers(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if all, err := r.Providers(t.Context()); err != nil || len(all) != 2 {
			t.Errorf("%v, %v", all, err)
		}
		l.took = time.Hour // one that never answers
		time.Sleep(time.Minute)
		begun := time.Now()
		if all, err := r.Providers(t.Context()); err != nil || len(all) != 2 || time.Since(begun) > Timeout {
			t.Errorf("after %s: %v, %v", time.Since(begun), all, err)
		}
	})
}

func TestStakes(t *testing.T) {
	in(t, func(t *testing.T, l *lister, r *Registry) {
		l.set(registered(5, 7), nil)
		got, err := r.Stakes(t.Context(), []sign.Key{{2}, {9}})
		if err != nil || len(got) != 2 || got[sign.Key{2}] != market.Amount(7) || got[sign.Key{9}] != 0 {
			t.Errorf("%v, %v", got, err)
		}
	})
}
