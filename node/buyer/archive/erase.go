package archive

import (
	"context"
	"errors"

	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/probe"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/secrets"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
)

// eraseBatch is how many records one write removes, about.
const eraseBatch = 1000

// Erase deletes the journal's records of a job, except the job and its leases. The caller deletes these afterwards, so
// that after a crash the job can be erased again.
func Erase(ctx context.Context, st store.Store, id string, bought []string) error {
	var gone journal.Batch
	mesh.Records.Delete(&gone, id)
	secrets.Records.Delete(&gone, id)
	record.Keepings.Delete(&gone, record.KeptOver+id)
	if err := trace.Records.Clear(ctx, st, &gone, id+"/"); err != nil {
		return err
	}
	for _, l := range bought {
		err := errors.Join(leases.Receipts.Clear(ctx, st, &gone, l+"/"), probe.Records.Clear(ctx, st, &gone, l+"/"))
		if err == nil && gone.Len() >= eraseBatch {
			err = gone.Commit(ctx, st)
			gone = journal.Batch{}
		}
		if err != nil {
			return err
		}
	}
	return gone.Commit(ctx, st)
}

// Write writes and deletes records of jobs, all or none.
func Write(ctx context.Context, st store.Store, puts ...store.Put) error {
	var b journal.Batch
	b.Add(puts...)
	return b.Commit(ctx, st)
}
