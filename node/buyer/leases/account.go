package leases

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Account returns the lease's account. It returns the journal's errors.
func (l *Lease) Account(ctx context.Context) (record.LeaseAccount, error) {
	owed := l.Owed()
	l.mu.Lock()
	rec, v, state := l.rec, l.payer.Voucher(), l.payer.State()
	l.mu.Unlock()
	a := record.LeaseAccount{
		Lease: l.ID, Provider: l.Core.Provider, Payout: l.Core.Payout, Rank: l.Core.Rank, Epoch: l.Core.RankEpoch,
		Route: rec.Route, Active: rec.Active, State: string(state), Owed: owed, Reason: rec.Reason, Escrow: rec.Escrow,
		Void: rec.Void, Signed: rec.Lease, Keys: rec.Keys, Voucher: rec.Voucher,
	}
	if v != nil && l.As.Alone() { // the journal has the vouchers that others signed
		voucher, err := signed(ctx, l, *v)
		if err != nil {
			return a, err
		}
		a.Voucher = voucher
	}
	err := l.book.eachReceipt(ctx, l.ID, func(r verify.Receipt) { a.Receipts = append(a.Receipts, r) })
	return a, err
}

// Hashes returns the hashes of a job's receipts in the order in which its anchor commits to them: by rank, epoch and id
// of their lease, then by number. Void leases cost nothing and are left out.
func Hashes(accounts []record.LeaseAccount) []sign.Hash {
	var out []sign.Hash
	for _, a := range accounts {
		if a.Void {
			continue
		}
		for _, r := range a.Receipts {
			out = append(out, r.SignedHash())
		}
	}
	return out
}

// Retire notes that the deposit of a settled lease had its end.
func (l *Lease) Retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
}

// Retired reports whether the deposit of the lease had its end in this process.
func (l *Lease) Retired() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retired
}

// Owed returns the sum of the lease's vouchers: of the final one if there is one, else of the best.
func (l *Lease) Owed() market.Amount {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.payer.Voucher(); v != nil && !l.rec.Void {
		return v.Cumulative
	}
	return 0
}

// Most returns the maximum total cost of the lease.
func (l *Lease) Most() market.Amount {
	if st := l.State(); st == meter.PayerSettled || st == meter.PayerStopping {
		return l.Owed()
	}
	return l.Core.Cap
}

// usedUp reports whether the lease's last slot has a receipt, or its time has passed in slot now: its provider may then
// close it with the last slots unpaid. l.mu is held.
func (l *Lease) usedUp(now market.Slot) bool {
	last := l.payer.Last()
	return last.Seq > 0 && last.To >= l.Core.End || l.payer.Reason() == meter.ReasonLeaseEnded ||
		now+market.Slot(l.terms().SkewSlots) >= l.Core.End
}

// receiptKey is the key of a receipt in the journal.
func receiptKey(l market.LeaseID, seq uint64) string { return fmt.Sprintf("%s/%020d", l, seq) }

// PutReceipt returns the write of a receipt of a lease.
func PutReceipt(l market.LeaseID, r verify.Receipt) store.Put {
	return Receipts.Encode(receiptKey(l, r.Seq), r.Marshal())
}

// eachReceipt calls fn for the receipts of a lease, in order.
func (b *Book) eachReceipt(ctx context.Context, id market.LeaseID, fn func(verify.Receipt)) error {
	return Receipts.List(ctx, b.cfg.Store, id.String()+"/", func(key string, value []byte) error {
		r, err := verify.UnmarshalReceipt(value)
		if err != nil {
			return fmt.Errorf("reading receipt %s: %w", key, err)
		}
		fn(r)
		return nil
	})
}

// Final returns the last receipt of a lease that ended, or nil.
func (b *Book) Final(ctx context.Context, id market.LeaseID) (final *verify.Receipt, err error) {
	err = b.eachReceipt(ctx, id, func(r verify.Receipt) {
		if r.Final() {
			final = &r
		}
	})
	return final, err
}
