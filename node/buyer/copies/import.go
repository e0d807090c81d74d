package copies

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

// Import brings the outputs of a job into the store by an exported record of its copies, which has everything that
// Restore has from the journal. Keepers send their copies to the peer that paid for them: it needs the key of the peer
// that made the record, and volumes that are still paid. It returns record.ErrRefused for a record that is incomplete,
// and record.ErrNoKeeper if no provider sent its copy.
func (r *Room) Import(ctx context.Context, s record.ShownCopies) error {
	k, missing, err := imported(s)
	if err != nil {
		return fmt.Errorf("%w: the record of the copies: %w", record.ErrRefused, err)
	}
	turn := r.turn(s.Job)
	if err := turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer turn.Release(1)
	if err := (archiver{r}).unstored(missing); err != nil || len(missing) == 0 {
		return err
	}
	if _, err := (archiver{r}).bring(ctx, k, s.Key, missing); err != nil {
		return fmt.Errorf("job %s: %w", s.Job, err)
	}
	return nil
}

// maxName bounds the id of a job in a record, bytes.
const maxName = 64

// imported returns the copies of a record, and the outputs by their digests.
func imported(s record.ShownCopies) (k record.Kept, all map[string]record.Blob, err error) {
	switch {
	case len(s.Job) == 0 || len(s.Job) > maxName:
		return k, nil, fmt.Errorf("job: got an id of %d bytes, want 1 to %d", len(s.Job), maxName)
	case s.Pack == nil || s.Pack.Size <= 0:
		return k, nil, fmt.Errorf("pack: none, the outputs had no copies yet")
	case s.Key == "":
		return k, nil, fmt.Errorf("key: none")
	case len(s.Copies) > maxAttempts:
		return k, nil, fmt.Errorf("copies: got %d, want at most %d", len(s.Copies), maxAttempts)
	case len(s.Outputs) > job.MaxRank:
		return k, nil, fmt.Errorf("outputs: got %d ranks, want at most %d", len(s.Outputs), job.MaxRank)
	}
	if _, err := blob.Parse(s.Pack.CID); err != nil {
		return k, nil, fmt.Errorf("pack: %w", err)
	}
	all = map[string]record.Blob{}
	for i, rank := range s.Outputs {
		if len(rank) > job.MaxOutputs {
			return k, nil, fmt.Errorf("outputs: rank %d has %d, want at most %d", i, len(rank), job.MaxOutputs)
		}
		for _, o := range rank {
			if _, err := blob.Parse(o.CID); err != nil {
				return k, nil, fmt.Errorf("output %d of rank %d: %w", len(all), i, err)
			}
			all[o.CID] = o.Blob
		}
	}
	if len(all) == 0 {
		return k, nil, fmt.Errorf("outputs: none")
	}
	k.Pack = s.Pack
	for _, c := range s.Copies {
		if c.State != record.CopyLost {
			k.Copies = append(k.Copies, record.Copy{Job: c.Job, Provider: c.Provider})
		}
	}
	return k, all, nil
}
