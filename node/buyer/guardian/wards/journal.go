package wards

import (
	"context"
	"fmt"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/journal"
)

// Records of the journal.
var (
	wards    = journal.Define[sign.Hash, Ward]("ward")                      // by job
	states   = journal.Define[sign.Hash, guardian.SignedState]("wardstate") // by job
	leases   = journal.Define[string, keptRecord]("wardlease")              // by job/lease
	receipts = journal.Define[string, []byte]("wardreceipt")                // verify.Receipt by job/lease/number
)

// keptRecord is a lease in the journal.
type keptRecord struct {
	guardian.Lease
	Word guardian.Word `json:"word"`
}

func leaseKey(job sign.Hash, l market.LeaseID) string { return job.String() + "/" + l.String() }

func receiptKey(job sign.Hash, l market.LeaseID, seq uint64) string {
	return fmt.Sprintf("%s/%020d", leaseKey(job, l), seq)
}

// each reads the records of a table. Their keys begin with a job.
func each[V any](
	ctx context.Context, s journal.Store, t journal.Table[string, V], f func(job sign.Hash, v V) error,
) error {
	return t.List(ctx, s, "", func(key string, v V) error {
		text, _, _ := strings.Cut(key, "/")
		job, err := sign.ParseHash(text)
		if err == nil {
			err = f(job, v)
		}
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", t.Kind(), key, err)
		}
		return nil
	})
}

// removeBatch bounds one write.
const removeBatch = 1000

// remove deletes the journal's records of a job beside its ward.
func remove(ctx context.Context, s journal.Store, job sign.Hash) error {
	var b journal.Batch
	states.Delete(&b, job)
	if err := removeAll(ctx, s, &b, leases, job); err != nil {
		return err
	}
	return removeAll(ctx, s, &b, receipts, job)
}

// removeAll deletes the records of a job in a table, after those of a batch.
func removeAll[V any](
	ctx context.Context, s journal.Store, b *journal.Batch, t journal.Table[string, V], job sign.Hash,
) error {
	var keys []string
	if err := t.List(ctx, s, job.String(), func(key string, _ V) error {
		keys = append(keys, key)
		return nil
	}); err != nil {
		return fmt.Errorf("reading a job's records: %w", err)
	}
	for {
		n := min(len(keys), removeBatch)
		for _, key := range keys[:n] {
			t.Delete(b, key)
		}
		if err := b.Commit(ctx, s); err != nil {
			return fmt.Errorf("removing a job's records: %w", err)
		}
		*b = journal.Batch{}
		if keys = keys[n:]; len(keys) == 0 {
			return nil
		}
	}
}
