// Package checkpoints has the hook of an executor that packs the checkpoint of a running program, so that the rank can
// continue elsewhere:
//
//	each interval: look ─ same as packed ─▶ next interval
//	                 │ changed
//	                 ▼
//	           at rest? ─ no ─▶ look again soon
//	                 │ no change for a moment, and no file is open for writing
//	                 ▼
//	               pack ─ changed meanwhile ─▶ discarded, again later
//	                 │
//	                 ▼
//	      journalled, reported, granted ─▶ the pack before the last is dropped
//
// A pack is content-addressed, and the buyer's peer fetches it as it does outputs. The provider does not restore: the
// next execution has the pack as an input at the checkpoint's path.
package checkpoints

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
)

const (
	// maxPacks bounds the packs of an execution, including an unfinished one.
	maxPacks = 2
	// maxPacking bounds the checkpoints that are read at a time, of all executions together.
	maxPacking = 2
	// restTime is the time without a change after which a directory is at rest, if none of its files is open for
	// writing. openTime is that time if one is, or if this machine cannot know.
	restTime, openTime = time.Second, 30 * time.Second
	// retryLeast and retryMost bound the wait for a directory to come to rest.
	retryLeast, retryMost = time.Second, 10 * time.Second
	// busyPart bounds the time for the checkpoint of an execution: one of so many parts.
	busyPart = 10
	// lastTime bounds the pack after the end of a program.
	lastTime = 30 * time.Second
)

// Texts of problems, for the buyer.
const (
	notPacked = "this provider could not pack the checkpoint"
	restless  = "files in the checkpoint change all the time: write them under another name outside, and rename them"
)

// Hook packs checkpoints at each interval in which they changed, and reports the packs. A pack is made of a directory
// at rest, and discarded if the directory changed meanwhile.
type Hook struct {
	blobs workload.Blobs
	files executor.Files
	log   *slog.Logger

	turn chan struct{} // has a token for each checkpoint that is being read
	mu   sync.Mutex    // held while packs are noted or dropped: two executions may have the same
}

var (
	_ executor.Poststart = (*Hook)(nil)
	_ executor.Recovery  = (*Hook)(nil)
	_ executor.Exit      = (*Hook)(nil)
)

// New returns the hook.
func New(blobs workload.Blobs, files executor.Files, log *slog.Logger) *Hook {
	return &Hook{blobs: blobs, files: files, log: log, turn: make(chan struct{}, maxPacking)}
}

// folder is the state of a checkpoint's directory. One goroutine at a time has it.
type folder struct {
	last  look      // the newest
	since time.Time // the directory was first seen so
	shut  bool      // and none of its files was open for writing
	done  look      // of the newest pack
	due   time.Time // a pack of a changed directory has been due since; zero: none is
	wait  time.Duration
}

// folderKey is the key of a folder among an execution's values.
type folderKey struct{}

func folderOf(e *executor.Execution) *folder {
	if r, ok := e.Value(folderKey{}).(*folder); ok {
		return r
	}
	r := &folder{}
	e.SetValue(folderKey{}, r)
	return r
}

// Poststart implements executor.Poststart.
func (h *Hook) Poststart(_ context.Context, e *executor.Execution) error {
	h.Recover(e)
	return nil
}

// Recover implements executor.Recovery.
func (h *Hook) Recover(e *executor.Execution) {
	if e.Work.Checkpoint == nil {
		return
	}
	r := folderOf(e)
	e.Go(func(ctx context.Context) {
		next := every(e)
		for {
			t := time.NewTimer(next)
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C:
			}
			next = h.visit(ctx, e, r)
		}
	})
}

func every(e *executor.Execution) time.Duration {
	return time.Duration(e.Work.Checkpoint.EveryMillis) * time.Millisecond
}

// enter waits for a turn to read files.
func (h *Hook) enter(ctx context.Context) (leave func(), err error) {
	select {
	case h.turn <- struct{}{}:
		return func() { <-h.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// visit looks at the checkpoint, packs it if that is due, and returns the time until the next visit.
func (h *Hook) visit(ctx context.Context, e *executor.Execution, r *folder) time.Duration {
	if e.Paused() {
		return every(e)
	}
	leave, err := h.enter(ctx)
	if err != nil {
		return every(e)
	}
	defer leave()
	began := time.Now()
	next := h.tend(ctx, e, r, began)
	return max(next, busyPart*time.Since(began))
}

// tend is visit in a turn.
func (h *Hook) tend(ctx context.Context, e *executor.Execution, r *folder, now time.Time) time.Duration {
	retry := min(max(every(e)/busyPart, retryLeast), retryMost)
	l, _, err := examine(e, false)
	switch {
	case err != nil:
		h.failed(ctx, e, err)
		return every(e)
	case l.entries == 0 || l == r.done:
		r.due, r.wait = time.Time{}, 0
		return every(e)
	case r.due.IsZero():
		r.due = now
	}
	if l != r.last {
		r.last, r.since, r.shut = l, now, false
		h.late(ctx, e, r, now)
		return restTime
	}
	if !r.shut && now.Sub(r.since) < openTime {
		if l, shut, err := examine(e, true); err != nil || l != r.last || !shut {
			h.late(ctx, e, r, now)
			return retry
		}
		r.shut = true
	}
	switch err := h.pack(ctx, e, r); {
	case errors.Is(err, errChanged):
		h.late(ctx, e, r, now)
		r.wait = min(max(2*r.wait, retry), max(every(e), retry))
		return r.wait
	case err != nil && ctx.Err() == nil:
		h.failed(ctx, e, err)
	}
	r.due, r.wait = time.Time{}, 0
	return every(e)
}

// late reports a directory that does not come to rest.
func (h *Hook) late(ctx context.Context, e *executor.Execution, r *folder, now time.Time) {
	if now.Sub(r.due) > 2*every(e)+openTime {
		h.trouble(ctx, e, restless)
	}
}

func (h *Hook) failed(ctx context.Context, e *executor.Execution, err error) {
	h.log.Debug("a checkpoint was not packed", "lease", e.Lease, "seq", e.Seq, "err", err)
	h.trouble(ctx, e, executor.BuyersText(err, notPacked))
}

// maxProblem bounds the text of a problem in bytes.
const maxProblem = 512

// trouble reports why there is no newer pack.
func (h *Hook) trouble(ctx context.Context, e *executor.Execution, text string) {
	if text = live.Clean(text); len(text) > maxProblem {
		text = strings.ToValidUTF8(text[:maxProblem], "") + "…"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s, _, _ := e.Snapshot()
	if s.PackProblem == text {
		return
	}
	if err := executor.SetPacks(ctx, e, s.Packs, text); err != nil && ctx.Err() == nil {
		h.log.Warn("a problem of a checkpoint is not journalled", "lease", e.Lease, "err", err)
	}
}

// errChanged is returned for a directory that changed while it was packed.
var errChanged = errors.New("the checkpoint changed while it was packed")

// pack stores the checkpoint and reports it. Its files and packs together have room in the disk of the lease.
func (h *Hook) pack(ctx context.Context, e *executor.Execution, r *folder) error {
	s, _, _ := e.Snapshot()
	kept := s.Packs[max(len(s.Packs)-maxPacks+1, 0):]
	if err := h.keep(ctx, e, kept, s.PackProblem); err != nil {
		return err
	}
	left, err := e.Stage().Used()
	if err != nil {
		return err
	}
	left = e.Disk() - left
	for _, p := range kept {
		left -= int64(p.Blob.Size)
	}
	t, err := e.Stage().Pack(ctx, e.Work, h.blobs, left)
	if now, _, lost := examine(e, false); lost == nil && now != r.last {
		r.last, r.since, r.shut = now, time.Now(), false
		if err == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.drop(e, t.CID)
		}
		return errChanged
	}
	if errors.Is(err, blob.ErrTooLarge) {
		return workload.Bad("checkpoint: two packs and all files of the program take more than the %d MiB of disk "+
			"that the lease has: request more disk", e.Disk()>>20)
	}
	if err != nil {
		return err
	}
	next := &nodepb.Pack{Number: 1, Blob: &nodepb.Blob{Cid: t.CID.Bytes(), Size: uint64(t.Size), Tree: true}}
	if n := len(kept); n > 0 {
		if next.Number = kept[n-1].Number + 1; bytes.Equal(kept[n-1].Blob.Cid, next.Blob.Cid) {
			next, kept = kept[n-1], kept[:n-1]
		}
	}
	if err := h.keep(ctx, e, append(slices.Clone(kept), next), ""); err != nil {
		return err
	}
	r.done = r.last
	h.log.Debug("a checkpoint was packed", "lease", e.Lease, "seq", e.Seq, "number", next.Number, "bytes", t.Size)
	return nil
}

// keep journals and reports the packs of an execution, and drops all others. It returns errChanged if the newest was
// dropped meanwhile with another execution.
func (h *Hook) keep(ctx context.Context, e *executor.Execution, all []*nodepb.Pack, problem string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, _, _ := e.Snapshot()
	n := len(all)
	if s.PackProblem == problem && len(s.Packs) == n && (n == 0 || has(s.Packs, all[n-1])) {
		return nil
	}
	if n > 0 && !has(s.Packs, all[n-1]) {
		if c, err := workload.CID(all[n-1].Blob); err != nil || !h.blobs.Has(c) {
			return errChanged
		}
	}
	if err := executor.SetPacks(ctx, e, all, problem); err != nil {
		return fmt.Errorf("keeping a pack: %w", err)
	}
	var before []*nodepb.Blob
	for _, p := range s.Packs {
		before = append(before, p.Blob)
	}
	h.drop(e, workload.CIDs(before...)...)
	return nil
}

func has(all []*nodepb.Pack, p *nodepb.Pack) bool {
	return slices.ContainsFunc(all, func(o *nodepb.Pack) bool { return proto.Equal(o, p) })
}

// drop drops packs that no execution has. h.mu is held.
func (h *Hook) drop(e *executor.Execution, packs ...cid.Cid) {
	for _, other := range e.All() {
		has := executor.FilesOf(other)
		packs = slices.DeleteFunc(packs, func(c cid.Cid) bool { return slices.Contains(has, c) })
	}
	h.files.Drop(packs...)
}

// Exited packs the checkpoint of a program that was stopped, or did not end well, once more. The end of a program may
// have cut a file short: unless it exited with 0, its directory must have been at rest before.
func (h *Hook) Exited(ctx context.Context, e *executor.Execution, res *executor.Result) error {
	if e.Work.Checkpoint == nil || res.Exit == nil || res.Lost() {
		return nil
	}
	well := res.Code == 0 && res.Reason == string(runtime.ReasonNone)
	if well && !e.Stopping() { // nothing continues from it
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastTime)
	defer cancel()
	leave, err := h.enter(ctx)
	if err != nil {
		return nil //nolint:nilerr // there is no time for it
	}
	defer leave()
	r := folderOf(e)
	l, _, err := examine(e, false)
	if err != nil || l.entries == 0 || l == r.done {
		return nil //nolint:nilerr // nothing to pack
	}
	if !well && (l != r.last || !r.shut && time.Since(r.since) < openTime) {
		return nil
	}
	r.last = l
	if err := h.pack(ctx, e, r); err != nil {
		h.log.Debug("the last checkpoint of a program was not packed", "lease", e.Lease, "seq", e.Seq, "err", err)
	}
	return nil
}
