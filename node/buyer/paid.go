package buyer

import (
	"context"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/meter"
)

// payments is how the buyer pays for its leases.
type payments interface {
	// afford refuses with ErrFunds what the wallet cannot pay: a job that can cost so much and takes so many leases at a time. A
	// chain that cannot be asked refuses nothing. The name is empty for one that is new.
	afford(ctx context.Context, job string, need market.Amount, leases uint32) error
	// account is what orders name as the account that pays, beside the peer's own; zero where there is no other.
	account() sign.Key
	// lamports is what a job of so many ranks will take of the peer's SOL, with so much set aside.
	lamports(ranks uint32, stake market.Amount) Lamports
	// fund sets the money of leases of one order aside, and says of each, in their order, where it is. That is in the journal
	// when it returns, and need not be on chain. After an error it may be told again, or else retire of the leases.
	fund(ctx context.Context, job string, leases []*bought) ([]place, error)
	// retire is told of a lease that costs nothing more, once or more often.
	retire(l *bought)
	// unused is told of an order of a job that has no lease any more that can come to cost something, and gets no other: what was set
	// aside for it and costs nothing comes back.
	unused(job string, o market.OrderID)
	// forsake is unused for what an earlier process did not live to tell: of orders whose leases are settled, and of such as it set
	// money aside for and did not live to journal one of them. It is told before the job sets aside anything else.
	forsake(job string)
	// settle takes back what was set aside for a job and costs nothing, has the receipts anchored that owed sums up, and says what was
	// paid. All of that is final when it returns. Leases can become void meanwhile, so owed is asked again.
	settle(ctx context.Context, job string, leases []*bought, owed func(context.Context) (anchoring, error)) (paid market.Amount, anchored []string, err error)
	// letGo keeps no more of a job's money in memory, and says what the journal need not keep: ok is false where some
	// of it can still move, or is still being taken back. The caller reports whether the journal has let it go; else
	// all is kept on.
	letGo(job string) (gone []store.Put, end func(gone bool), ok bool)
	// giveUp winds up what was hired for a job of another peer, which has wound up the rest.
	giveUp(job string) error
	// escrows are where the money of a job was set aside, the first one first.
	escrows(job string) []Escrow
	// run does what goes on beside the jobs until ctx ends.
	run(ctx context.Context)
}

// place is where a lease is paid from; zero where nothing is paid.
type place struct {
	escrow  sign.Key
	funding []byte // of it, as the provider is told
}

// fund sets the money of leases aside that both have signed, and makes them ready to be paid for.
func (b *Buyer) fund(ctx context.Context, job string, leases ...*bought) error {
	places, err := b.pay.fund(ctx, job, leases)
	if err != nil {
		return err
	}
	for i, l := range leases {
		if err := l.ready(places[i]); err != nil {
			return err
		}
	}
	return nil
}

// using notes that leases of an order are being taken, until the caller calls back.
func (b *Buyer) using(job string, o market.OrderID) (back func()) {
	b.mu.Lock()
	b.forming[o]++
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		if b.forming[o]--; b.forming[o] == 0 {
			delete(b.forming, o)
		}
		b.mu.Unlock()
		b.used(job, o)
	}
}

// used is told of an order that may be used no more: a lease of it is settled, or no more are being taken.
func (b *Buyer) used(job string, o market.OrderID) {
	b.mu.Lock()
	more := b.forming[o] > 0 || b.openLocked(o)
	b.mu.Unlock()
	if !more {
		b.pay.unused(job, o)
	}
}

// openLocked reports whether a lease of an order is not settled, or its deposit not told so yet. b.mu is held.
func (b *Buyer) openLocked(o market.OrderID) bool {
	for _, l := range b.leases {
		if l.core.Order == o && !l.closed() {
			return true
		}
	}
	return false
}

func (l *bought) closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.payer.State() == meter.PayerSettled && l.retired
}

// free pays for nothing: on a free network nothing costs anything.
type free struct{}

func (free) afford(context.Context, string, market.Amount, uint32) error { return nil }

func (free) account() sign.Key { return sign.Key{} }

func (free) lamports(uint32, market.Amount) Lamports { return Lamports{} }

func (free) fund(_ context.Context, _ string, leases []*bought) ([]place, error) {
	return make([]place, len(leases)), nil
}

func (free) retire(*bought)                {}
func (free) unused(string, market.OrderID) {}
func (free) forsake(string)                {}
func (free) letGo(string) ([]store.Put, func(bool), bool) {
	return nil, func(bool) {}, true
}
func (free) escrows(string) []Escrow { return nil }
func (free) run(context.Context)     {}

func (free) settle(ctx context.Context, _ string, _ []*bought, owed func(context.Context) (anchoring, error)) (market.Amount, []string, error) {
	_, err := owed(ctx)
	return 0, nil, err
}
