package copies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/blob/chunks"
	"github.com/starling-network/starling/p2p/blob/swarm"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// spotLook is the interval between two searches for checks that are due.
	spotLook = 30 * time.Second
	// spotWait is how long a search waits for another change of a job's copies. Then its checks are made later.
	spotWait = 5 * time.Second
	// The time from one check of a copy to the next is spotLeast and an exponentially distributed time with the mean
	// spotMean, together at most spotMost. The last check gives no hint of the next one.
	spotLeast, spotMean, spotMost = 30 * time.Minute, 5*time.Hour + 30*time.Minute, 24 * time.Hour
	// spotAgain is the time after a failed check.
	spotAgain = 15 * time.Minute
	// A copy is lost after spotFailures checks in a row without a chunk, the first of them spotPatience ago, or
	// lastPatience if neither this peer nor another keeper is known to have the pack: perhaps this peer is cut off.
	spotFailures, spotPatience, lastPatience = 8, 3 * time.Hour, 24 * time.Hour
)

// The reasons of the loss of copies that checks find.
const (
	lostFalse  = "its provider sent other bytes than those of the copy"
	lostSilent = "its provider has sent nothing of the copy for a while"
)

// spots checks at random times that keepers still have their copies: a keeper sends one random chunk of the pack, and
// the chunk has the digest of this peer's list. All checks together prove only that the keeper could get these
// chunks at these times.
type spots struct {
	*Room
	least time.Duration // that a keeper has for a chunk, beside the time of its bytes
}

// run checks copies until ctx ends.
func (s spots) run(ctx context.Context) error {
	tick := time.NewTicker(spotLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.round(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("copies of jobs are not checked now", "err", err)
		}
	}
}

// round makes the checks that are due.
func (s spots) round(ctx context.Context) error {
	return s.each(ctx, "the copies of a job are not checked now", s.job)
}

// job makes the checks of a job's copies that are due, one after the other.
func (s spots) job(ctx context.Context, id string) error {
	k, due, err := s.due(ctx, id)
	if err != nil {
		return err
	}
	for _, c := range due {
		if err := s.note(ctx, id, c, s.ask(ctx, k, c)); err != nil {
			return err
		}
	}
	return nil
}

// due returns the copies whose check is due. The time of their next one is journalled before, so that restarts make no
// more checks. It draws the time of the first check of new copies.
func (s spots) due(ctx context.Context, id string) (k record.Kept, due []record.Copy, err error) {
	turn := s.turn(id)
	wait, cancel := context.WithTimeout(ctx, spotWait)
	defer cancel()
	if turn.Acquire(wait, 1) != nil { // its copies are being fetched
		return k, nil, ctx.Err()
	}
	defer turn.Release(1)
	k, at, err := s.read(ctx, id)
	if err != nil || at != record.KeptOpen || k.Chunks == "" {
		if errors.Is(err, record.ErrNoCopies) { // it was removed meanwhile
			err = nil
		}
		return k, nil, err
	}
	k = k.Clone()
	changed, now := false, time.Now()
	for i := range k.Copies {
		c := &k.Copies[i]
		if c.Lost != "" || c.Provider.IsZero() || now.Before(c.Spot.Next) {
			continue
		}
		of, err := s.cfg.Jobs.Job(c.Job)
		if err != nil || len(of.Ranks) == 0 || of.Ranks[0].Provider != c.Provider {
			continue
		}
		if st, _ := state(of); st != record.CopyKept {
			continue
		}
		changed = true
		if c.Spot.Next.IsZero() {
			c.Spot.Next = now.Add(drawn())
			continue
		}
		c.Spot.Next = now.Add(spotAgain)
		due = append(due, *c)
	}
	if changed {
		err = s.write(ctx, id, k)
	}
	return k, due, err
}

// drawn is the time to the next check of a copy.
func drawn() time.Duration {
	return min(spotLeast+time.Duration(rand.ExpFloat64()*float64(spotMean)), spotMost)
}

// errFalse means that a keeper sent other bytes than those of the pack, or names another size.
var errFalse = errors.New("the bytes do not match the digest of the chunk")

// ask requests one random chunk of the pack from a keeper. It returns errFalse for other bytes, blob.ErrAlone, or the
// reason why none came.
func (s spots) ask(ctx context.Context, k record.Kept, of record.Copy) error {
	c, err := blob.Parse(k.Pack.CID)
	if err != nil {
		return err
	}
	list, err := s.list(k)
	if err != nil {
		return fmt.Errorf("%w: reading the chunk list: %w", errOwn, err)
	}
	from, err := p2p.PeerIDFromKey(of.Provider)
	if err != nil {
		return err
	}
	if len(list.Sums) == 0 {
		return fmt.Errorf("%w: the pack is empty", errOwn)
	}
	i := rand.IntN(len(list.Sums))
	offset, length := list.Span(i)
	ctx, cancel := context.WithTimeout(ctx, s.least+time.Duration(length/leastRate)*time.Second)
	defer cancel()
	into := make([]byte, length)
	err = s.cfg.Parts.Part(ctx, from, c, k.Pack.Size, offset, into)
	var malformed *stream.Malformed
	switch {
	case errors.Is(err, swarm.ErrChunk), errors.As(err, &malformed): // its file has another size
		return fmt.Errorf("%w: %w", errFalse, err)
	case err == nil && !list.Matches(i, into):
		return fmt.Errorf("%w: chunk %d", errFalse, i)
	}
	return err
}

// errOwn means that this peer cannot check a keeper, for a reason of its own.
var errOwn = errors.New("no keeper was asked")

// note journals the result of a check, unless the copy was lost meanwhile.
func (s spots) note(ctx context.Context, id string, of record.Copy, result error) error {
	if ctx.Err() != nil {
		return ctx.Err() // the result is this peer's own end
	}
	turn := s.turn(id)
	if err := turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer turn.Release(1)
	k, at, err := s.read(ctx, id)
	if errors.Is(err, record.ErrNoCopies) || err == nil && at != record.KeptOpen {
		return nil
	}
	if err != nil {
		return err
	}
	k = k.Clone()
	i := slices.IndexFunc(k.Copies, func(c record.Copy) bool {
		return c.Job == of.Job && c.Provider == of.Provider && c.Lost == ""
	})
	if i < 0 {
		return nil
	}
	c := &k.Copies[i]
	wait, err := s.patience(k, i)
	if err != nil {
		return err
	}
	judge(c, result, wait, time.Now())
	switch {
	case c.Lost != "":
		s.cfg.Log.Warn("a copy of a job's outputs is lost", "job", id, "volume", c.Job, "provider", c.Provider,
			"reason", c.Lost, "err", result)
	case result != nil:
		s.cfg.Log.Info("a provider did not send a part of its copy", "job", id, "volume", c.Job,
			"provider", c.Provider, "failed", c.Spot.Failed, "err", result)
	}
	return s.write(ctx, id, k)
}

// patience is the time for which a keeper may send nothing.
func (s spots) patience(k record.Kept, i int) (time.Duration, error) {
	for j, c := range k.Copies {
		if j != i && c.Lost == "" && c.Spot.Passed.After(k.Copies[i].Spot.Since) {
			return spotPatience, nil
		}
	}
	if ok, err := s.here(k.Pack.CID); ok || err != nil {
		return spotPatience, err
	}
	return lastPatience, nil
}

// judge applies the result of a check to a copy, whose keeper may send nothing for a time.
func judge(c *record.Copy, result error, wait time.Duration, now time.Time) {
	switch {
	case result == nil:
		c.Spot = record.Spot{Next: now.Add(drawn()), Passed: now}
	case errors.Is(result, errFalse):
		c.Lost, c.Stop = lostFalse, true
	case errors.Is(result, errOwn), errors.Is(result, blob.ErrAlone):
	default:
		if c.Spot.Failed++; c.Spot.Failed == 1 {
			c.Spot.Since = now
		}
		if c.Spot.Failed >= spotFailures && now.Sub(c.Spot.Since) >= wait {
			c.Lost, c.Stop = lostSilent, true
		}
	}
}

// list returns the chunk list of the pack.
func (s spots) list(k record.Kept) (chunks.List, error) {
	f, _, err := s.cfg.Files.OpenBlob("", k.Chunks)
	if err != nil {
		return chunks.List{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, chunks.MaxCount*32+1))
	if err != nil {
		return chunks.List{}, err
	}
	return chunks.Parse(k.Pack.Size, data)
}

// digest stores the chunk list of the pack, if the list is not here and the pack is. A pack without a list is not
// checked.
func (r *Room) digest(ctx context.Context, id string, k *record.Kept) error {
	if k.Chunks != "" {
		if ok, err := r.here(k.Chunks); ok || err != nil {
			return err
		}
	}
	f, size, err := r.cfg.Files.OpenBlob("", k.Pack.CID)
	if errors.Is(err, blob.ErrNotFound) || err == nil && size > chunks.MaxBlob {
		if err == nil {
			err = f.Close()
		} else {
			err = nil
		}
		return err
	}
	if err != nil {
		return err
	}
	defer f.Close()
	list, err := chunks.Of(f, size)
	if err != nil {
		return fmt.Errorf("reading the pack: %w", err)
	}
	if k.Chunks, _, err = r.cfg.Files.PutBlob(ctx, "", bytes.NewReader(list.Bytes())); err != nil {
		return fmt.Errorf("storing the chunk list of the pack: %w", err)
	}
	return r.write(ctx, id, *k)
}
