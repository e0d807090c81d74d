package buyer

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/verify/meter"
)

// payments is how the buyer pays for its leases.
type payments interface {
	// afford refuses with ErrFunds what the wallet cannot pay: a job that can cost so much and takes so many leases at a time. A
	// chain that cannot be asked refuses nothing. The name is empty for one that is new.
	afford(ctx context.Context, job string, need market.Amount, leases uint32) error
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
	// release takes back what was set aside for a job and costs nothing. When it returns that is final, and so is what is owed.
	release(ctx context.Context, job string, leases []*bought) error
	// pay pays what is owed, as far as providers do not claim it, and anchors the receipts. What it says is final.
	pay(ctx context.Context, job string, owed chain.AmountsOwed) (paid market.Amount, anchored []string, err error)
	// escrows are where the money of a job was set aside, the first one first.
	escrows(job string) []Escrow
	// run does what goes on beside the jobs until ctx ends.
	run(ctx context.Context)
}

// place is where a lease is paid from; zero where that is the wallet.
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

// openLocked says whether a lease of an order is not settled. b.mu is held.
func (b *Buyer) openLocked(o market.OrderID) bool {
	for _, l := range b.leases {
		if l.core.Order == o && l.state() != meter.PayerSettled {
			return true
		}
	}
	return false
}

// direct pays from the wallet what vouchers say, once no lease of the job can come to cost more.
type direct struct {
	b      *Buyer
	driver *settle.Driver
}

func newDirect(b *Buyer) *direct {
	d := &direct{b: b}
	d.driver = settle.New(settle.Config{Ledger: b.cfg.Ledger, Store: b.cfg.Store, Params: b.cfg.Settle, Log: b.cfg.Log, Settled: d.settled, Waiting: b.waiting})
	return d
}

func (d *direct) afford(ctx context.Context, _ string, need market.Amount, _ uint32) error {
	ctx, cancel := context.WithTimeout(ctx, fundsTimeout)
	defer cancel()
	b := d.b
	if have, err := b.cfg.Ledger.Balance(ctx, b.cfg.Owner); err == nil && have < need {
		return &fundsError{need: b.cfg.Genesis.FormatAmount(need), have: b.cfg.Genesis.FormatAmount(have), wallet: b.cfg.Owner}
	}
	return nil
}

func (d *direct) fund(_ context.Context, _ string, leases []*bought) ([]place, error) {
	return make([]place, len(leases)), nil
}

func (d *direct) retire(*bought) {}

func (d *direct) unused(string, market.OrderID) {}

func (d *direct) forsake(string) {}

func (d *direct) escrows(string) []Escrow { return nil }

func (d *direct) run(context.Context) {}

func (d *direct) release(context.Context, string, []*bought) error { return nil }

func (d *direct) pay(ctx context.Context, job string, owed chain.AmountsOwed) (market.Amount, []string, error) {
	if len(owed.Owed) == 0 {
		return 0, nil, nil
	}
	m, err := d.driver.Load(ctx, job)
	if err != nil {
		return 0, nil, err
	}
	if m, err = d.driver.Pay(ctx, job, m, owed); err != nil {
		return 0, nil, err
	}
	var txs []string
	for _, batch := range m.History() {
		txs = append(txs, string(batch.Tx.ID))
	}
	_, paid, _ := m.Totals()
	return paid, txs, nil
}

// settled notes a payment that is final.
func (d *direct) settled(job string, batch chain.Batch) {
	for _, p := range batch.Payouts {
		d.b.note(job, Step{At: time.Now(), Kind: StepPaid, Provider: p.To.String(), Price: d.b.cfg.Genesis.FormatAmount(p.Amount),
			Detail: fmt.Sprintf("lease %s in transaction %s", p.Lease.Short(), batch.Tx.ID)})
	}
}
