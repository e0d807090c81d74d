package buyer

import (
	"context"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/meter"
)

// payments pays for leases: pay.Payments, or pay.Free on a free network.
type payments interface {
	budget
	deposits
	closing
}

// budget shows the money of jobs.
type budget interface {
	// Afford returns an error that wraps ErrFunds if the wallet cannot pay for a job that can cost so much and takes so
	// many leases at a time. A chain that does not answer refuses nothing. The job is empty for a new one.
	Afford(ctx context.Context, job string, need market.Amount, leases uint32) error
	// Account returns the account that orders name beside the peer's own, or zero if there is no other.
	Account() sign.Key
	// Lamports estimates the SOL for a job of so many ranks, with so much set aside.
	Lamports(ranks uint32, stake market.Amount) Lamports
	// Escrows returns the escrows of a job, the first one first.
	Escrows(job string) []Escrow
}

// deposits sets money aside.
type deposits interface {
	// Fund sets the money of leases of one order aside, and returns the source of each, in their order. The journal has
	// the sources when it returns, and the money need not be on chain. After an error it may be called again, or else
	// Retire with the leases.
	Fund(ctx context.Context, job string, leases []pay.Lease) ([]pay.Source, error)
	// Retire takes back the money of a lease that costs nothing more. It may be called again.
	Retire(l pay.Lease)
	// Unused winds up an order without leases that can come to cost something, and which gets no other lease.
	Unused(job string, o market.OrderID)
	// Forsake is Unused for the orders of an earlier process that crashed. It comes before the job sets aside anything
	// else.
	Forsake(job string)
}

// closing ends the payments of jobs.
type closing interface {
	// Settle takes back the money that was set aside for a job and costs nothing, and has the receipts anchored. It
	// returns the amount that was paid and the transactions of the anchors. All of that is final when it returns. Leases
	// can become void meanwhile, so the bill is counted again.
	Settle(ctx context.Context, job string, leases []pay.Lease, bill pay.Bill) (market.Amount, []string, error)
	// LetGo drops a job's money from memory, and returns the records that the journal need not keep. ok is false where
	// some of the money can still move, or is still being taken back. The caller calls end with the journal's answer:
	// unless the records are gone, all is kept on.
	LetGo(job string) (gone []store.Put, end func(gone bool), ok bool)
	// GiveUp winds up the hires for a job of another peer, which has wound up the rest.
	GiveUp(job string) error
	// Run carries out payments until ctx ends.
	Run(ctx context.Context)
}

// fund sets the money of leases aside that both have signed, and makes them ready to be paid for.
func (b *Buyer) fund(ctx context.Context, job string, leases ...*bought) error {
	sources, err := b.pay.Fund(ctx, job, payables(leases))
	if err != nil {
		return err
	}
	for i, l := range leases {
		if err := l.ready(sources[i]); err != nil {
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
		b.pay.Unused(job, o)
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

// payable is a lease as its payment needs it.
func (l *bought) payable() pay.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return pay.Lease{
		ID: l.id, Job: l.job, Core: l.core, Keys: l.keys, Escrow: l.rec.Escrow, Hired: l.rec.Hired,
		Settled: l.payer.State() == meter.PayerSettled, Retired: l.retired,
	}
}

// void ends a lease that costs nothing, since its money was not on chain in time, and tries until the journal has that, or ctx ends.
func (l *bought) void(ctx context.Context, reason string) error {
	b := l.b
	for told := false; ; told = true {
		again, err := l.voidOnce(ctx)
		if again {
			return nil
		}
		if err == nil {
			break
		}
		if !told && ctx.Err() == nil {
			b.cfg.Log.Error("a void lease was not journalled; trying again until it is", "lease", l.id, "err", err)
		}
		if err := pause(ctx, journalRetry); err != nil {
			return err
		}
	}
	if l.state() != meter.PayerSettled {
		_ = l.over(ctx, reason)
		b.wg.Go(func() { b.tell(ctx, l, reason) })
	}
	return nil
}

// voidOnce notes that a lease is void once the journal has it; again says that it was noted before.
func (l *bought) voidOnce(ctx context.Context) (again bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rec.Void {
		return true, nil
	}
	l.rec.Void = true
	rec, err := l.record()
	if err == nil {
		err = l.b.cfg.Store.Write(ctx, rec)
	}
	l.rec.Void = err == nil
	return false, err
}
