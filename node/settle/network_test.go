package settle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// slow is a chain that says what the network is once it may.
type slow struct {
	Chain
	account account.Network
	may     chan struct{}
	asked   int
}

func (s *slow) Network(ctx context.Context) (account.Network, error) {
	s.asked++
	select {
	case <-s.may:
		return s.account, nil
	case <-ctx.Done():
		return account.Network{}, chain.ErrDown
	}
}

// Who asks for the network while another one waits for a chain that hangs waits no longer than it wants to. The chain is asked by one at
// a time, and once it has answered no more.
func TestNetworkAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mint := sign.Key{7}
		p := account.Params{Network: "test", ResponseSlots: 100, Mints: []account.MintTerms{account.DefaultTerms(mint, 6)}}
		g := market.Genesis{Network: "test", Program: sign.Key{8}, Mint: mint, Escrow: account.NetworkAddress(sign.Key{8}, p)}
		c := &slow{account: account.NewNetwork(p), may: make(chan struct{})}
		n := NewNetwork(g, c, store.NewMemory())
		first := make(chan error)
		get := func() {
			_, err := n.Get(t.Context())
			first <- err
		}
		go get()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := n.Get(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("beside one that waits: %v after %v", err, time.Since(began))
		}
		go get()
		synctest.Wait()
		close(c.may)
		if err := errors.Join(<-first, <-first); err != nil || c.asked != 1 {
			t.Errorf("the chain was asked %d times: %v", c.asked, err)
		}
		var net escrow.Net
		if got, err := n.Get(ctx); err != nil || got.Address() == net.Address() || c.asked != 1 {
			t.Errorf("afterwards: asked %d times, %v", c.asked, err)
		}
	})
}

// Rules that were voted for are taken, and kept over a restart; what an endpoint that lags shows is not, nor another account.
func TestNetworkUpdate(t *testing.T) {
	t.Parallel()
	mint := sign.Key{7}
	p := account.Params{Network: "test", ResponseSlots: 100, UnbondingSlots: 2, EvidenceSlots: 1, Mints: []account.MintTerms{account.DefaultTerms(mint, 6)}}
	g := market.Genesis{Network: "test", Program: sign.Key{8}, Mint: mint, Escrow: account.NetworkAddress(sign.Key{8}, p)}
	c := &slow{account: account.NewNetwork(p), may: make(chan struct{})}
	close(c.may)
	journal := store.NewMemory()
	n := NewNetwork(g, c, journal)
	if _, changed, err := n.Update(t.Context()); err != nil || changed {
		t.Fatalf("nothing was voted for: %t, %v", changed, err)
	}
	voted := account.NewNetwork(p)
	voted.Sequence, voted.Rules.ResponseSlots = 1, 300
	c.account = voted
	if _, changed, err := n.Update(t.Context()); err != nil || !changed {
		t.Fatalf("rules were voted for: %t, %v", changed, err)
	}
	c.account = account.NewNetwork(p)
	if _, changed, err := n.Update(t.Context()); err != nil || changed {
		t.Errorf("an endpoint that lags: %t, %v", changed, err)
	}
	other := voted
	other.Params.MarginSlots, other.Sequence = 9, 2
	c.account = other
	if _, changed, err := n.Update(t.Context()); !errors.Is(err, chain.ErrMalformed) || changed {
		t.Errorf("another network's account: %t, %v", changed, err)
	}
	for _, n := range []*Network{n, NewNetwork(g, c, journal)} {
		if net, err := n.Get(t.Context()); err != nil || net.Account.Rules.ResponseSlots != 300 {
			t.Errorf("after it: %+v, %v", net.Account.Rules, err)
		}
	}
}
