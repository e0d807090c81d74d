// Package jobproof makes the proofs that a job's buyer keeps: the job's cost and its probes.
package jobproof

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/exclusive"
)

// Jobs is the jobs of a buyer.
type Jobs interface {
	Job(id string) (record.Job, error)
	Receipts(ctx context.Context, id string) ([]record.LeaseAccount, error)
	Probes(ctx context.Context, id string) ([]exclusive.Record, error)
}

// Of returns a job's proof of a kind: receipts or probes. It returns proof.ErrKind for any other, and the buyer's
// errors.
func Of(ctx context.Context, of Jobs, id string, k proof.Kind) (proof.Proof, error) {
	var c proof.Content
	j, err := of.Job(id) // first: its transactions come after its last receipt
	if err != nil {
		return proof.Proof{}, err
	}
	switch k {
	case proof.KindReceipts:
		var accounts []record.LeaseAccount
		if accounts, err = of.Receipts(ctx, j.ID); err == nil {
			c, err = Receipts(j, accounts)
		}
	case proof.KindProbes:
		var records []exclusive.Record
		if records, err = of.Probes(ctx, j.ID); err == nil {
			c, err = Probes(j.ID, records)
		}
	default:
		err = fmt.Errorf("%w: %.40q, want %s or %s", proof.ErrKind, k, proof.KindReceipts, proof.KindProbes)
	}
	if err != nil {
		return proof.Proof{}, err
	}
	return proof.New(c)
}

// Probes returns the probes of a job.
func Probes(job string, records []exclusive.Record) (proof.Probes, error) {
	raw := make([][]byte, 0, len(records))
	for _, r := range records {
		raw = append(raw, r.Marshal())
	}
	return proof.NewProbes(job, raw)
}

// Receipts returns the proof of a job's cost. Void leases, which cost nothing, are left out. It returns the decoders'
// errors.
func Receipts(j record.Job, accounts []record.LeaseAccount) (proof.Receipts, error) {
	var owner sign.Key
	if j.Detached != nil {
		owner = j.Detached.Owner
	}
	var leases []proof.Lease
	for _, a := range accounts {
		if a.Void {
			continue
		}
		l, err := lease(a)
		if err != nil {
			return proof.Receipts{}, err
		}
		leases = append(leases, l)
	}
	var txs []chain.TxID
	for _, tx := range j.Transactions {
		txs = append(txs, chain.TxID(tx))
	}
	return proof.NewReceipts(j.ID, owner, leases, txs), nil
}

func lease(a record.LeaseAccount) (l proof.Lease, err error) {
	l.Receipts = a.Receipts
	if l.Lease, err = market.UnmarshalLease(a.Signed); err != nil {
		return l, err
	}
	if l.Keys, err = market.UnmarshalKeySet(a.Keys); err != nil {
		return l, err
	}
	if len(a.Voucher) > 0 {
		var v verify.SignedVoucher
		v, err = verify.UnmarshalSignedVoucher(a.Voucher)
		l.Voucher = &v
	}
	return l, err
}
