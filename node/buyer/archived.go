package buyer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/node/buyer/archive"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/store"
)

// A job that has ended, and whose money is settled for good, leaves memory once there are enough newer jobs. One write
// moves it to the archive, and requests for it read the archive.

const (
	// keptRanks is how many ranks the ended jobs that stay in memory have together, about.
	keptRanks = 256
	// leaveBatch is how many jobs leave memory in one write.
	leaveBatch = 64
	// tidyEvery is the interval of checks for jobs that may leave memory. A check also follows the end of each job.
	tidyEvery = time.Minute
)

// retiring is the buyer as it takes jobs out of memory that have ended.
type retiring struct{ *Buyer }

// tidying takes ended jobs out of memory until ctx ends.
func (b retiring) tidying(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := errors.Join(b.tidy(ctx, keptRanks), b.forget(ctx)); err != nil && ctx.Err() == nil {
			b.cfg.Log.Warn("ended jobs stay in memory", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-b.ended:
		case r := <-b.removals:
			r.done <- r.run(ctx)
		}
	}
}

// hasEnded triggers a check for jobs that may leave memory.
func (b retiring) hasEnded() {
	select {
	case b.ended <- struct{}{}:
	default:
	}
}

// tidy removes ended jobs from memory, the oldest first, until the remaining ones have at most keep ranks together. A
// job whose money can still move, or counts against today's limits by a change, stays. It must not run twice at a time.
func (b retiring) tidy(ctx context.Context, keep int) error {
	ranks := 0
	var old []*supervisor
	for _, s := range b.sorted() {
		j := s.Peek()
		if !s.Mine || !j.State.Ended() {
			continue
		}
		if ranks += len(j.Ranks); ranks > keep {
			old = append(old, s)
		}
	}
	if ranks <= keep+keep/8 { // many leave at once
		return nil
	}
	today := spend.DayOf(time.Now())
	old = slices.DeleteFunc(old, func(s *supervisor) bool {
		raised := s.Peek().Raised // the archive does not have it
		return !s.over() || !s.Settled() || raised != nil && spend.DayOf(raised.At) == today
	})
	for batch := range slices.Chunk(old, leaveBatch) {
		if err := b.leave(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether this process has finished its work for the job.
func (s *supervisor) over() bool {
	select {
	case <-s.Done():
		return true
	default:
	}
	st, err := s.State()
	return !s.Mine && err == nil && st.Done() // this peer has nothing more to do for it
}

// leave removes ended jobs from memory if their money is settled for good.
func (b retiring) leave(ctx context.Context, jobs []*supervisor) error {
	now := time.Now()
	var writes []store.Put
	var gone []*supervisor
	var moves []archive.Job
	var ends []func(bool)
	for _, s := range jobs {
		money, end, ok := b.pay.LetGo(s.ID)
		if !ok {
			continue
		}
		j, moved, err := s.moved(now)
		if err != nil {
			end(false)
			b.cfg.Log.Warn("an ended job stays in memory", "job", s.ID, "err", err)
			continue
		}
		writes = append(append(writes, money...), moved...)
		gone, moves, ends = append(gone, s), append(moves, j), append(ends, end)
	}
	if len(gone) == 0 {
		return nil
	}
	err := archive.Write(ctx, b.cfg.Store, writes...)
	if err == nil {
		b.mu.Lock()
		for i, s := range gone {
			b.drop(s)
			b.archive.Add(moves[i].Entry, now)
		}
		b.mu.Unlock()
	}
	for i, s := range gone {
		ends[i](err == nil)
		s.gone(err == nil)
	}
	if err != nil {
		return fmt.Errorf("archiving jobs: %w", err)
	}
	return nil
}

// drop takes a job and its leases out of memory. b.mu is held.
func (b retiring) drop(s *supervisor) {
	if b.jobs[s.ID] == s {
		delete(b.jobs, s.ID)
	}
	b.runner.Remove(s.Job)
	for _, l := range s.Bought() {
		b.leases.Remove(l)
	}
}

// moved returns the job as it is archived, and the writes when it leaves memory. From then on the job is not saved,
// unless gone reverts the move.
func (s *supervisor) moved(now time.Time) (archive.Job, []store.Put, error) {
	j := s.Freeze()
	to, puts := retiring{s.b}.archived(j), []store.Put{{Kind: record.Records.Kind(), Key: j.ID}}
	for _, l := range s.Bought() {
		record, payer, err := l.Marshal()
		if err != nil {
			s.gone(false)
			return to, nil, err
		}
		to.Leases[l.ID.String()] = archive.Lease{Record: record, Payer: payer}
		puts = append(puts, leases.Forget(l.ID)...)
		if today := spend.DayOf(now); spend.DayOf(l.Record().At) == today {
			to.Day, to.Paid = today, append(to.Paid, archive.Cost{To: l.Core.Provider, Amount: l.Most()})
		}
	}
	all, err := archive.Puts(to)
	if err != nil {
		s.gone(false)
	}
	return to, append(puts, all...), err
}

// gone notes that the job has left memory, or that it stays after all.
func (s *supervisor) gone(left bool) {
	if !left {
		s.Thaw()
		return
	}
	if s.command != nil {
		s.command.Silence()
		s.command.Voice().Close()
	}
}

// archived is a job as it is archived, without its leases.
func (b retiring) archived(j Job) archive.Job {
	j.Escrows = b.pay.Escrows(j.ID)
	return archive.Job{
		Entry: archive.Entry{
			ID: j.ID, State: string(j.State), Name: j.Spec.Name, Key: j.Key, Created: j.Created.UnixNano(),
			Spent: spending(b).spent(j), Fees: took(j).Fees, Tx: string(j.AnchoredIn()),
		},
		Full: j, Leases: map[string]archive.Lease{}, Blobs: blobsOf(j),
	}
}

// recall reads a job that has left memory, with its leases. It does not load it into memory again.
func (b retiring) recall(id string) (*supervisor, error) {
	ctx := context.Background()
	var j Job
	if err := b.archive.Read(ctx, id, &j); err != nil {
		return nil, err
	}
	s, err := b.newSupervisor(j)
	if err != nil {
		return nil, err
	}
	s.Trace.Retire()
	s.Freeze()
	s.Close()
	if err := b.archive.Leases(ctx, id, func(key string, of archive.Lease) error {
		var rec leases.Record
		if err := json.Unmarshal(of.Record, &rec); err != nil {
			return fmt.Errorf("reading lease %s: %w", key, err)
		}
		l, err := b.leases.Restore(rec, of.Payer, s.As())
		if err != nil {
			return fmt.Errorf("reading lease %s: %w", key, err)
		}
		s.Hold(l)
		return nil
	}); err != nil {
		return nil, err
	}
	return s, b.leases.Link(s.Leases())
}

// removal is a call of Remove. It runs in tidying, because both take jobs out of memory.
type removal struct {
	b  retiring
	id string
	Removed
	done chan error
}

func (r *removal) run(ctx context.Context) error {
	s, id, err := r.b.lookUp(r.id)
	if err != nil {
		return err
	}
	if s != nil {
		if err := r.b.archiveNow(ctx, s); err != nil {
			return err
		}
	}
	var j Job
	if err := r.b.archive.Read(ctx, id, &j); err != nil {
		return err
	}
	if err := old(j); err != nil {
		return err
	}
	r.LogBytes = r.b.runner.DiskUse(id)
	j.EachLeft(func(text string) {
		if c, err := cid.Parse(text); err == nil {
			r.Left = append(r.Left, c)
		}
	})
	if err := r.b.removeArchived(ctx, j); err != nil {
		return fmt.Errorf("removing job %s: %w", id, err)
	}
	return nil
}

// old returns ErrNeeded unless the job ended RemoveAfter ago or earlier.
func old(j Job) error {
	if time.Since(j.Ended) >= record.RemoveAfter {
		return nil
	}
	at := j.Ended.UTC().Format(time.RFC3339)
	return fmt.Errorf("%w: the job ended at %s, want %v ago or more", ErrNeeded, at, record.RemoveAfter)
}

// archiveNow takes one job out of memory, or returns ErrNeeded.
func (b retiring) archiveNow(ctx context.Context, s *supervisor) error {
	j := s.Peek()
	switch {
	case !s.Mine:
		return fmt.Errorf("%w: this peer guards the job for its owner", ErrNeeded)
	case !j.State.Ended() || !s.over():
		return fmt.Errorf("%w: the job is %s", ErrNeeded, j.State)
	}
	if err := old(j); err != nil {
		return err
	}
	if s.Settled() {
		if err := b.leave(ctx, []*supervisor{s}); err != nil {
			return err
		}
	}
	if !b.archive.Has(s.ID) {
		return fmt.Errorf("%w: money of it is under way", ErrNeeded)
	}
	return nil
}

// removeArchived deletes an archived job with all that belongs to it.
func (b retiring) removeArchived(ctx context.Context, j Job) error {
	var leases []string
	err := b.archive.Leases(ctx, j.ID, func(id string, _ archive.Lease) error {
		leases = append(leases, id)
		return nil
	})
	if err == nil {
		err = b.erase(ctx, j.ID, leases)
	}
	if err != nil {
		return err
	}
	return b.archive.Remove(ctx, j.ID, maps.Keys(blobsOf(j)))
}
