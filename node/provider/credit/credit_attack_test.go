package credit

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/provider/lapses"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/admit"
)

// holdings is a chain that shows accounts.
type holdings struct {
	mu       sync.Mutex
	accounts map[sign.Key]escrow.Purse
	down     bool
	requests int
}

// Purses implements Chain.
func (h *holdings) Purses(_ context.Context, accounts []sign.Key) ([]escrow.Purse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.requests++; h.down {
		return nil, chain.ErrDown
	}
	if len(accounts) > escrow.MaxPurses {
		return nil, errors.New("too many at a time")
	}
	out := make([]escrow.Purse, len(accounts))
	for i, a := range accounts {
		out[i] = h.accounts[a]
	}
	return out, nil
}

var testMint = sign.Key{7}

func someKey(n int) sign.Key { return sign.NewPrivate([32]byte{byte(n), byte(n >> 8), 77}).Key() }

// purseOf is a peer's own token account.
func purseOf(k sign.Key) sign.Key { return svm.TokenAccount(k, testMint) }

// funded is the knowledge of a provider that sees these accounts, until the test ends.
func funded(t *testing.T, h *holdings) *Credit {
	t.Helper()
	c, err := New(t.Context(), store.NewMemory(), h, &lapsing{}, someKey(0), testMint)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return c
}

// backing is Backing of an order that came by gossip.
func (c *Credit) backing(ctx context.Context, o market.Order) (*lease.Backing, error) {
	return c.Backing(ctx, o, admit.Stranger, netip.Prefix{})
}

func refusedFor(err error) market.Reason {
	var no *market.Refusal
	if errors.As(err, &no) {
		return no.Reason
	}
	return ""
}

// Orders of keys without money had quotes and units of every provider. What backs an order is now what its peer can
// spend, and where the chain does not say, nothing does but of those who paid here before.
func TestAttackUnfundedOrders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rich, poor := someKey(1), someKey(2)
		h := &holdings{accounts: map[sign.Key]escrow.Purse{purseOf(rich): {Owner: rich, Amount: 500}}}
		x := funded(t, h)
		for who, want := range map[sign.Key]market.Amount{rich: 500, poor: 0} {
			b, err := x.backing(t.Context(), market.Order{Buyer: who})
			if err != nil || b == nil || b.Funds != want || !b.Newcomer {
				t.Errorf("%s: %+v, %v", who.Short(), b, err)
			}
		}
		time.Sleep(fundsFresh)
		h.down = true
		if _, err := x.backing(t.Context(), market.Order{Buyer: rich}); refusedFor(err) != market.ReasonUnseen {
			t.Errorf("unseen: %v", err)
		}
		if err := x.payers.add(t.Context(), rich, time.Now()); err != nil {
			t.Fatal(err)
		}
		if b, err := x.backing(t.Context(), market.Order{Buyer: rich}); err != nil || b.Funds == 0 || b.Newcomer {
			t.Errorf("one that paid before: %+v, %v", b, err)
		}
	})
}

// Recent funds are enough for a buyer that paid here, for a minute, and the chain is asked again after half of it.
func TestRecent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		payer, newcomer := someKey(1), someKey(2)
		h := &holdings{accounts: map[sign.Key]escrow.Purse{
			purseOf(payer): {Owner: payer, Amount: 500}, purseOf(newcomer): {Owner: newcomer, Amount: 500}}}
		x := funded(t, h)
		is := func(what string, who sign.Key, want market.Amount, requests int) {
			t.Helper()
			b := x.Recent(market.Order{Buyer: who})
			synctest.Wait()
			if got := b != nil && b.Funds == want && !b.Newcomer; got != (want > 0) || h.requests != requests {
				t.Errorf("%s: %+v after %d requests, want %d", what, b, h.requests, requests)
			}
		}
		if err := x.payers.add(t.Context(), payer, time.Now()); err != nil {
			t.Fatal(err)
		}
		is("nothing is known", payer, 0, 0)
		for _, k := range []sign.Key{payer, newcomer} {
			if _, err := x.backing(t.Context(), market.Order{Buyer: k}); err != nil {
				t.Fatal(err)
			}
		}
		is("fresh", payer, 500, 2)
		is("a newcomer", newcomer, 0, 2)
		time.Sleep(fundsFresh)
		is("not renewed yet", payer, 500, 2)
		time.Sleep(fundsRenewed)
		h.mu.Lock()
		h.accounts[purseOf(payer)] = escrow.Purse{Owner: payer, Amount: 7}
		h.mu.Unlock()
		is("renewed", payer, 500, 3)
		is("asked again", payer, 7, 3)
		time.Sleep(fundsKept)
		is("too old", payer, 0, 3)
	})
}

// TestAttackMoneyMovesOn: the same money, moved from one paying key to the next, backs a hold of each for a minute. The
// first hold that lapses ends that: then the chain decides.
func TestAttackMoneyMovesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keys = 20
		h := &holdings{accounts: map[sign.Key]escrow.Purse{}}
		x := funded(t, h)
		for i := range keys {
			k := someKey(i + 1)
			h.mu.Lock()
			h.accounts = map[sign.Key]escrow.Purse{purseOf(k): {Owner: k, Amount: 500}}
			h.mu.Unlock()
			if err := x.payers.add(t.Context(), k, time.Now()); err != nil {
				t.Fatal(err)
			}
			if _, err := x.backing(t.Context(), market.Order{Buyer: k}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		l := x.ledger.(*lapsing)
		l.lapses, _ = l.lapses.Unpaid(lease.Unpaid{Peer: someKey(1), Held: time.Second, Lapsed: true}, time.Now())
		for i := range keys {
			o := market.Order{Buyer: someKey(i + 1)}
			b := x.Recent(o)
			if b == nil {
				time.Sleep(fundsFresh)
				var err error
				if b, err = x.backing(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			if want := market.Amount(i+1) / keys * 500; b.Funds != want {
				t.Errorf("key %d: got %d, want %d", i, b.Funds, want)
			}
		}
	})
}

// An order is backed by no account that its peer does not own or is not the delegate of, and by no escrow that does not
// name this provider and has no word of its peer.
func TestAttackOthersFunds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		whale, thief, agent, guard := someKey(1), someKey(2), someKey(3), someKey(4)
		e := account.Escrow{State: account.EscrowOpen, Buyer: whale, Deposited: 300, Outstanding: 100, Keys: market.KeySet{Threshold: 1, Keys: []sign.Key{guard}},
			Standbys: []account.Standby{{Provider: someKey(0), Budget: 250}}}
		elsewhere, back := e, e
		elsewhere.Standbys = []account.Standby{{Provider: someKey(9), Budget: 250}}
		back.State = account.EscrowRefunded
		h := &holdings{accounts: map[sign.Key]escrow.Purse{
			purseOf(whale): {Owner: whale, Delegate: agent, Amount: 500, Delegated: 90}, purseOf(agent): {Owner: agent, Amount: 5},
			{1}: {Escrow: &e}, {2}: {Escrow: &elsewhere}, {3}: {Escrow: &back}, {4}: {Owner: someKey(5), Delegate: thief, Amount: 3, Delegated: math.MaxUint64},
		}}
		x := funded(t, h)
		for _, c := range []struct {
			name  string
			peer  sign.Key
			funds sign.Key
			want  market.Amount
		}{
			{"a whale's account", thief, purseOf(whale), 0},
			{"that of the delegate", agent, purseOf(whale), 95},
			{"its own, named", whale, purseOf(whale), 500},
			{"allowed more than there is", thief, sign.Key{4}, 3},
			{"no account", thief, sign.Key{99}, 0},
			{"an escrow of others", thief, sign.Key{1}, 0},
			{"an escrow, by a guardian", guard, sign.Key{1}, 200},
			{"an escrow, by its buyer", whale, sign.Key{1}, 700},
			{"an escrow for another provider", guard, sign.Key{2}, 0},
			{"an escrow that was paid back", guard, sign.Key{3}, 0},
		} {
			b, err := x.backing(t.Context(), market.Order{Buyer: c.peer, Funds: c.funds})
			if err != nil || b.Funds != c.want {
				t.Errorf("%s: %+v, %v; want %d", c.name, b, err, c.want)
			}
		}
	})
}

// However many orders there are, the chain is asked five times a second, strangers have their part of what waits for
// it, and what it says is remembered within bounds.
func TestAttackFundsLookups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const orders = 5000
		h := &holdings{accounts: map[sign.Key]escrow.Purse{}}
		x := funded(t, h)
		var wg sync.WaitGroup
		var mu sync.Mutex
		busy := 0
		for i := range orders {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // a thousand a second
				if _, err := x.backing(t.Context(), market.Order{Buyer: someKey(100 + i), Funds: sign.Key{9, byte(i), byte(i >> 8)}}); err != nil {
					mu.Lock()
					busy++
					mu.Unlock()
				}
			})
		}
		honest := someKey(1)
		h.mu.Lock()
		h.accounts[purseOf(honest)] = escrow.Purse{Owner: honest, Amount: 9}
		h.mu.Unlock()
		time.Sleep(2 * time.Second)
		got, err := x.purses.get(t.Context(), admit.Counterparty, testNetwork, purseOf(honest))
		if err != nil || got[0].Spendable(honest) != 9 {
			t.Errorf("one of a higher standing: %v, %v", got, err)
		}
		wg.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if most := fundsPerSecond*(orders/1000+2) + fundsBurst; h.requests > most {
			t.Errorf("%d orders made %d requests to the chain, at most %d", orders, h.requests, most)
		}
		if busy == 0 || len(x.purses.known) > maxPurses || len(x.purses.wanted) > 0 {
			t.Errorf("%d orders were too many, %d answers are remembered, %d wanted", busy, len(x.purses.known), len(x.purses.wanted))
		}
	})
}

var testNetwork = admit.NetworkOf(nil)

// lapsing has the lapses of a book.
type lapsing struct{ lapses lapses.Lapses }

func (l *lapsing) Lapses() lapses.Lapses { return l.lapses }

func (l *lapsing) Paid(_ context.Context, peer sign.Key) error {
	l.lapses, _ = l.lapses.Paid(peer)
	return nil
}

// A peer with lapses gets no units, newcomers get them with care, and a payment forgets the lapses.
func TestBackingAfterLapses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := funded(t, &holdings{accounts: map[sign.Key]escrow.Purse{}})
		l := x.ledger.(*lapsing)
		peer := someKey(1)
		for range 2 {
			time.Sleep(time.Minute)
			l.lapses, _ = l.lapses.Unpaid(lease.Unpaid{Peer: peer, Held: time.Second, Lapsed: true}, time.Now())
		}
		if _, err := x.backing(t.Context(), market.Order{Buyer: peer}); refusedFor(err) != market.ReasonUnpaid {
			t.Errorf("after two lapses: %v", err)
		}
		if b, err := x.backing(t.Context(), market.Order{Buyer: someKey(2)}); err != nil || !b.Wary {
			t.Errorf("a newcomer: %+v, %v", b, err)
		}
		if err := x.Paid(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
		if _, err := x.backing(t.Context(), market.Order{Buyer: peer}); err != nil {
			t.Errorf("after a payment: %v", err)
		}
	})
}
