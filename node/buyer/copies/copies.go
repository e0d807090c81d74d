// Package copies keeps the outputs of jobs at other peers for a paid time, so that they survive their provider and this
// peer's disk. Job.Copies of package job requests it. No part of it has a protocol of its own:
//
//	outputs ─▶ tar ─▶ age ─▶ pack    a blob here, encrypted with a key of this job alone
//	pack ─▶ volume                   one job for each copy, with the pack as its input. Its provider fetches the
//	                                 pack, and sends it to the owner of the volume while the lease lasts
//	chunk ◀─ keeper                  at random times, of the pack's chunk list, which stays here
//	pack ◀─ keeper                   fetch of a blob by its digest
//	pack ─▶ age ─▶ tar ─▶ outputs    each is stored if its digest is that of the job's
//
// The entry of a job's copies is in the journal from the job's submission on. The key and the pack's digest are written
// before a volume is ordered, and each attempt before its submission. After a crash an attempt is submitted again under
// the same idempotency key, so that no copy is bought twice.
//
// A copy is lost if its volume ends before its paid time, or if its provider fails the checks: the volume is then
// stopped. A lost copy is placed once more, at another provider, as long as this peer or a keeper has the pack. A
// copy that is paid for less time than all, which Extend gives more, is replaced before it ends.
package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/blob"
)

const (
	// every is the interval between two looks at the copies of all jobs.
	every = 2 * time.Second
	// atOnce is the number of jobs whose copies change at a time.
	atOnce = 4
	// useKey is the use of the boxes of the packs' keys.
	useKey = "copies"
)

// Jobs has the jobs of this peer.
type Jobs interface {
	Job(id string) (record.Job, error)
	Submit(ctx context.Context, sub record.Submission) (record.Job, error)
	Stop(ctx context.Context, id string) error
	// Extend gives a job more time and, unless budget is zero, another budget.
	Extend(ctx context.Context, id string, by time.Duration, budget market.Amount) (record.Extension, error)
}

// Files is this peer's store of blobs, and the exchange with other peers.
type Files interface {
	// PutBlob stores the content of r, for an API key unless that is "".
	PutBlob(ctx context.Context, key string, r io.Reader) (c string, size int64, err error)
	// OpenBlob reads a stored blob that an API key may read; any, if key is "". It returns blob.ErrNotFound if there is
	// no such blob.
	OpenBlob(key, c string) (io.ReadCloser, int64, error)
	// Fetch copies a blob of at most most bytes from a peer into the store.
	Fetch(ctx context.Context, from peer.ID, c cid.Cid, most int64) error
	// Drop removes blobs that nothing needs.
	Drop(all ...cid.Cid)
}

// Parts requests parts of blobs from other peers.
type Parts interface {
	// Part reads len(into) bytes of a blob of a known size from a peer, from offset on. The caller checks them. It
	// returns swarm.ErrChunk for an answer that cannot be these bytes, blob.ErrAlone, or the reason why none came.
	Part(ctx context.Context, from peer.ID, c cid.Cid, size, offset int64, into []byte) error
}

// Boxes encrypts to this peer's key.
type Boxes interface {
	Seal(to sign.Key, use, id string, plain []byte) ([]byte, error)
	Open(use, id string, box []byte) ([]byte, error)
}

// Config is the surroundings of a Room. All of it is required.
type Config struct {
	Self  sign.Key
	Store journal.Store
	Boxes Boxes
	Jobs  Jobs
	Files Files
	Parts Parts
	Log   *slog.Logger
}

// Room keeps the copies of all jobs. New starts nothing; Run does.
type Room struct {
	cfg Config

	turns sync.Map // by job: a *semaphore.Weighted of 1, held while its copies change or are fetched
	needs sync.Map // by job: its chunk list, and the pack if a copy is still to be made of it, a []cid.Cid
}

// New returns the room of a peer.
func New(cfg Config) *Room { return &Room{cfg: cfg} }

// Run places, replaces and checks the copies until ctx ends.
func (r *Room) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return r.place(ctx) })
	g.Go(func() error { return spots{r, leastPatience}.run(ctx) })
	return g.Wait()
}

// place looks after the copies until ctx ends.
func (r *Room) place(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := r.round(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("copies of jobs are not looked after now", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// each calls do for each job with copies that are looked after, for atOnce jobs at a time. It logs the errors of do.
func (r *Room) each(ctx context.Context, failed string, do func(ctx context.Context, id string) error) error {
	var open []string
	err := record.Keepings.List(ctx, r.cfg.Store, record.KeptOpen, func(key string, _ record.Kept) error {
		open = append(open, strings.TrimPrefix(key, record.KeptOpen))
		return nil
	})
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, id := range open {
		g.Go(func() error {
			if err := do(ctx, id); err != nil && ctx.Err() == nil {
				r.cfg.Log.Warn(failed, "job", id, "err", err)
			}
			return nil
		})
	}
	return g.Wait()
}

// round makes one step for each job with copies that are looked after.
func (r *Room) round(ctx context.Context) error {
	return r.each(ctx, "the copies of a job are not looked after now", func(ctx context.Context, id string) error {
		turn := r.turn(id)
		if !turn.TryAcquire(1) { // its copies are being fetched
			return nil
		}
		defer turn.Release(1)
		return r.step(ctx, id)
	})
}

// turn returns the lock of a job's copies.
func (r *Room) turn(id string) *semaphore.Weighted {
	m, _ := r.turns.LoadOrStore(id, semaphore.NewWeighted(1))
	return m.(*semaphore.Weighted)
}

// Blobs returns the packs that copies are still to be made of, and the chunk lists of all packs.
func (r *Room) Blobs() (map[cid.Cid]bool, error) {
	out := map[cid.Cid]bool{}
	r.needs.Range(func(_, all any) bool {
		for _, c := range all.([]cid.Cid) {
			out[c] = true
		}
		return true
	})
	return out, nil
}

// read returns a job's entry and the prefix of its key. It returns record.ErrNoCopies for a job without an entry.
func (r *Room) read(ctx context.Context, id string) (k record.Kept, at string, err error) {
	for _, at := range []string{record.KeptOpen, record.KeptOver} {
		k, err := record.Keepings.Get(ctx, r.cfg.Store, at+id)
		if !errors.Is(err, store.ErrNotFound) {
			return k, at, err
		}
	}
	return k, "", fmt.Errorf("job %s: %w", id, record.ErrNoCopies)
}

// Show returns the copies of a job's outputs, with the key that decrypts them. It returns record.ErrNoCopies for a job
// without.
func (r *Room) Show(ctx context.Context, id string) (record.ShownCopies, error) {
	j, err := r.cfg.Jobs.Job(id)
	if err != nil {
		return record.ShownCopies{}, err
	}
	k, _, err := r.read(ctx, j.ID)
	if err != nil {
		return record.ShownCopies{}, err
	}
	out := record.ShownCopies{Job: j.ID, Pack: k.Pack, Until: k.Until, Reason: k.Over, Copies: []record.ShownCopy{}}
	if j.Spec.Copies != nil {
		out.Wanted = j.Spec.Copies.Count
	}
	if len(k.Box) > 0 {
		key, err := r.cfg.Boxes.Open(useKey, j.ID, k.Box)
		if err != nil {
			return out, fmt.Errorf("reading the key of the copies: %w", err)
		}
		out.Key = string(key)
	}
	for _, rank := range j.Ranks {
		out.Outputs = append(out.Outputs, rank.Outputs)
	}
	for _, c := range k.Copies {
		s := record.ShownCopy{Job: c.Job, Provider: c.Provider, State: record.CopyPlacing, Reason: c.Lost,
			Checked: c.Spot.Passed, Failed: c.Spot.Failed}
		of, err := r.cfg.Jobs.Job(c.Job)
		switch {
		case c.Lost != "":
			s.State = record.CopyLost
		case c.Job == "" || err != nil:
		default:
			s.State, s.Reason = state(of)
			s.Provider = of.Ranks[0].Provider
			s.Until = of.Until()
		}
		out.Copies = append(out.Copies, s)
	}
	return out, nil
}

// state returns the state of the copy that a volume has, and the reason of its end.
func state(of record.Job) (record.CopyState, string) {
	switch {
	case of.State == record.Settling || of.State.Ended():
		if until := of.Until(); !until.IsZero() && !time.Now().Before(until) {
			return record.CopyLost, pastTime
		}
		if of.Reason == "" {
			return record.CopyLost, "its volume has ended"
		}
		return record.CopyLost, of.Reason
	case of.Ranks[0].Runs():
		return record.CopyKept, ""
	}
	return record.CopyPlacing, of.Ranks[0].Live.Message
}

// pastTime is the reason of the end of a copy whose time was paid in full.
const pastTime = "its paid time has ended"

// here reports whether a blob is stored here.
func (r *Room) here(c string) (bool, error) {
	f, _, err := r.cfg.Files.OpenBlob("", c)
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, f.Close()
}
