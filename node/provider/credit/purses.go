package credit

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p/admit"
)

// Before any work for an order, its peer's spendable money is read from the chain. Orders are free, so the requests are
// few: they wait for one another, and one request to the chain answers all that wait.

const (
	// fundsFresh is the validity of an answer, and fundsWait its time limit. For a buyer that paid here, an answer is
	// valid for fundsKept, and is requested again after fundsRenewed.
	fundsFresh   = 3 * time.Second
	fundsRenewed = fundsKept / 2
	fundsKept    = time.Minute
	fundsWait    = 2 * time.Second
	// fundsPerSecond is how many requests there are to the chain in a second, and fundsBurst at once.
	fundsPerSecond, fundsBurst = 5, 5
	// maxFundsWaiting bounds the orders that wait for an answer, by the standing of their senders.
	maxFundsWaiting = 100
	// maxPurses is the number of remembered answers: more than can be requested while they are fresh.
	maxPurses = 4096
)

// errFundsBusy means that too many orders wait for the chain.
var errFundsBusy = errors.New("too many orders wait for the chain")

// Chain reads accounts from the chain.
type Chain interface {
	// Purses reads accounts that orders name, at most escrow.MaxPurses, confirmed and in their order. It is one
	// request.
	Purses(ctx context.Context, accounts []sign.Key) ([]escrow.Purse, error)
}

// purses caches the balances of accounts in orders. New starts nothing; run does.
type purses struct {
	chain  Chain
	places *admit.Places
	more   chan struct{} // holds one token when something is wanted

	mu     sync.Mutex
	known  map[sign.Key]purse
	wanted map[sign.Key]*asked
}

// purse is an answer.
type purse struct {
	escrow.Purse
	at time.Time
}

// asked is a request without an answer yet.
type asked struct {
	done chan struct{} // closed once purse or err is set
	purse
	err error
}

func newPurses(c Chain) *purses {
	return &purses{
		chain: c, places: admit.NewPlaces(maxFundsWaiting), more: make(chan struct{}, 1),
		known: map[sign.Key]purse{}, wanted: map[sign.Key]*asked{},
	}
}

// get returns accounts, in order, as they were fundsFresh ago at most, for an order that came from a peer of a standing
// in a network.
func (s *purses) get(
	ctx context.Context, standing admit.Standing, from netip.Prefix, accounts ...sign.Key,
) ([]escrow.Purse, error) {
	out := make([]escrow.Purse, len(accounts))
	missing := 0
	now := time.Now()
	s.mu.Lock()
	for i, a := range accounts {
		if p, ok := s.known[a]; ok && now.Sub(p.at) < fundsFresh {
			out[i] = p.Purse
		} else {
			missing++
		}
	}
	s.mu.Unlock()
	if missing == 0 {
		return out, nil
	}
	free := s.places.Take(standing, from)
	if free == nil {
		return nil, errFundsBusy
	}
	defer free()
	waits := make([]*asked, len(accounts))
	s.mu.Lock()
	for i, a := range accounts {
		if waits[i] = s.wanted[a]; waits[i] == nil {
			waits[i] = &asked{done: make(chan struct{})}
			s.wanted[a] = waits[i]
		}
	}
	s.mu.Unlock()
	s.wake()
	for i, w := range waits {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-w.done:
		}
		if w.err != nil {
			return nil, w.err
		}
		out[i] = w.Purse
	}
	return out, nil
}

// recent returns accounts, in order, at most fundsKept old, or nil. It does not wait: it requests answers that are
// older than fundsRenewed, unless too many are pending.
func (s *purses) recent(accounts ...sign.Key) []escrow.Purse {
	out := make([]escrow.Purse, len(accounts))
	fresh, now := true, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range accounts {
		p, ok := s.known[a]
		if !ok || now.Sub(p.at) >= fundsKept {
			return nil
		}
		out[i], fresh = p.Purse, fresh && now.Sub(p.at) < fundsRenewed
	}
	if fresh {
		return out
	}
	for _, a := range accounts {
		if s.wanted[a] == nil && len(s.wanted) < maxFundsWaiting {
			s.wanted[a] = &asked{done: make(chan struct{})}
		}
	}
	s.wake()
	return out
}

// wake lets run send requests to the chain.
func (s *purses) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// run reads the wanted balances from the chain until ctx ends.
func (s *purses) run(ctx context.Context) {
	limit := rate.NewLimiter(fundsPerSecond, fundsBurst)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.more:
		}
		if limit.Wait(ctx) != nil {
			return
		}
		s.ask(ctx)
	}
}

// ask makes one request to the chain.
func (s *purses) ask(ctx context.Context) {
	var accounts []sign.Key
	var waits []*asked
	s.mu.Lock()
	for a, w := range s.wanted {
		if len(accounts) == escrow.MaxPurses {
			break
		}
		accounts, waits = append(accounts, a), append(waits, w)
		delete(s.wanted, a)
	}
	if len(s.wanted) > 0 {
		s.wake()
	}
	s.mu.Unlock()
	if len(accounts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, fundsWait)
	defer cancel()
	now := time.Now()
	found, err := s.chain.Purses(ctx, accounts)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range waits {
		if w.err = err; err == nil {
			w.purse = purse{found[i], now}
			s.remember(accounts[i], w.purse)
		}
		close(w.done)
	}
}

// remember keeps an answer; s.mu is held.
func (s *purses) remember(a sign.Key, p purse) {
	if len(s.known) >= maxPurses {
		for old, k := range s.known {
			if p.at.Sub(k.at) >= fundsFresh {
				delete(s.known, old)
			}
		}
	}
	if len(s.known) < maxPurses {
		s.known[a] = p
	}
}
