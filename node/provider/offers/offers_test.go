package offers

import (
	"context"
	"log/slog"
	"testing"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/provider/policy"
	"github.com/starling-network/starling/node/provider/providertest"
	"github.com/starling-network/starling/node/store"
)

// shop is a provider with one free unit, and its publisher.
type shop struct {
	book  lease.Book
	addrs []ma.Multiaddr
}

func (s *shop) Book() lease.Book                                            { return s.book }
func (s *shop) Selling(time.Time) bool                                      { return true }
func (s *shop) Clusters() bool                                              { return false }
func (s *shop) Egress() (to market.Egress)                                  { return to }
func (s *shop) Coordinate() (at market.Coordinate)                          { return at }
func (s *shop) Addrs() []ma.Multiaddr                                       { return s.addrs }
func (s *shop) Offer(context.Context, []market.Offer, [][]byte) (err error) { return nil }

// slow is a journal whose writes wait once it has channels.
type slow struct {
	store.Store
	begun, open chan struct{}
}

func (s *slow) Write(ctx context.Context, puts ...store.Put) error {
	if s.begun != nil {
		close(s.begun)
		<-s.open
	}
	return s.Store.Write(ctx, puts...)
}

// newBoard returns the board of a shop on a journal.
func newBoard(t *testing.T, s *shop, journal store.Store) (*Board, policy.Lot) {
	t.Helper()
	key, g := providertest.KeyOf(t, 1), providertest.Genesis
	units := providertest.Units(t, key.Key(), 1)
	lot := policy.Lot{Class: "cpu", Units: units, PerUnit: providertest.PerUnit}
	s.book = lease.NewBook(units, lease.Limits{
		Provider: key.Key(), Payout: key.Key(), Domain: g.Domain(), SlotMillis: g.SlotMillis, Region: "eu",
		Runtimes: []string{"wasm"}, MinSlots: 1, MaxSlots: 100_000, Asks: map[market.Class]market.Price{"cpu": 5},
		HoldTTL: time.Second, SignTTL: time.Second, MaxHolds: 4, MaxHoldsPerBuyer: 2, StartWithin: 100,
		ActivateWithin: 100, MarginSlots: g.IntervalSlots,
	})
	b, err := New(t.Context(), Config{
		Domain: g.Domain(), Key: key, Store: journal, Lots: []policy.Lot{lot}, Provider: s, Publisher: s,
		Template: market.Offer{
			Provider: key.Key(), Payout: key.Key(), Region: "eu", MinSlots: 1, MaxSlots: 100_000,
			Runtimes: []string{"wasm"}, GenesisHash: g.Hash(),
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b, lot
}

// A number of a class is never used again, also after a restart.
func TestNumbers(t *testing.T) {
	t.Parallel()
	journal := store.NewMemory()
	for want := uint64(1); want < 4; want++ {
		b, lot := newBoard(t, &shop{}, journal)
		for range 2 { // the second one is the first, still published
			p, err := b.Current(t.Context(), lot)
			if err != nil || p.Offer.Seq != want {
				t.Fatalf("offer %d, want %d: %v", p.Offer.Seq, want, err)
			}
		}
	}
}

// Quotes carry the published offer while the journal writes the number of the next one.
func TestCurrentWhileWriting(t *testing.T) {
	t.Parallel()
	s, journal := &shop{}, &slow{Store: store.NewMemory()}
	b, lot := newBoard(t, s, journal)
	if _, err := b.Current(t.Context(), lot); err != nil {
		t.Fatal(err)
	}
	journal.begun, journal.open = make(chan struct{}), make(chan struct{})
	s.addrs = []ma.Multiaddr{ma.StringCast("/ip4/192.0.2.1/tcp/4001")}
	renewed := make(chan error, 1)
	go func() {
		_, _, err := b.all(t.Context())
		renewed <- err
	}()
	<-journal.begun
	if p, err := b.Current(t.Context(), lot); err != nil || p.Offer.Seq != 1 {
		t.Errorf("offer %d, want 1: %v", p.Offer.Seq, err)
	}
	if n := b.Public(time.Now()); n != 1 {
		t.Errorf("%d offers are public, want 1", n)
	}
	close(journal.open)
	if err := <-renewed; err != nil || b.Seq("cpu") != 2 {
		t.Errorf("offer %d, want 2: %v", b.Seq("cpu"), err)
	}
}
