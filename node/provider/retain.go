package provider

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/verify/exclusive"
)

// keepLocked records until when an ended execution's files are kept, and their size: its outputs are in the store, its
// logs with the runtime, logs bytes. e.mu is held.
func (x *executor) keepLocked(e *execution, logs int64) {
	size := logs
	for _, o := range e.state.Outputs {
		size += int64(min(o.GetBlob().GetSize(), 1<<62))
	}
	e.rec.Kept = size
	wanted := e.work.KeepMillis
	if most := uint64(x.retain / time.Millisecond); wanted == 0 || wanted > most {
		wanted = most
	}
	e.state.KeepUntilMillis = uint64(time.Now().UnixMilli()) + wanted
}

// clear removes the files that the program of an ended execution saw. Its end must be in the journal: until then the
// outputs may be collected again.
func (x *executor) clear(e *execution) {
	if err := x.stage(e).Clear(); err != nil {
		x.log.Warn("the files of an ended execution cannot be removed", "lease", e.rec.Lease, "err", err)
	}
}

// diskUse is how many bytes the files beneath dir have.
func diskUse(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone, or not there: it takes nothing
		}
		if info, err := d.Info(); err == nil && d.Type().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// left is the remaining files of an ended lease.
type left struct {
	id    market.LeaseID
	buyer peer.ID   // the peer that fetches it
	until time.Time // it must be kept
	size  int64     // bytes
}

// kept says of leases until when anything of them must be kept, and how much that is. A lease without executions is kept for
// as long after it was first seen over.
func (x *executor) kept(ids []market.LeaseID, now time.Time) []left {
	x.mu.Lock()
	all := slices.Collect(maps.Values(x.exec))
	x.mu.Unlock()
	of := map[market.LeaseID]left{}
	for _, e := range all {
		l := of[e.rec.Lease]
		e.mu.Lock()
		if at := time.UnixMilli(int64(e.state.KeepUntilMillis)); at.After(l.until) {
			l.until = at
		}
		l.size += e.rec.Kept
		l.buyer = e.rec.Buyer
		e.mu.Unlock()
		of[e.rec.Lease] = l
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]left, 0, len(ids))
	for _, id := range ids {
		l, ok := of[id]
		if !ok {
			at, seen := x.over[id]
			if !seen {
				at = now
				x.over[id] = now
			}
			l.until = at.Add(x.retain)
		}
		l.id = id
		out = append(out, l)
	}
	return out
}

// forget removes the remains of a lease's ended executions on disk and in the journal.
func (x *executor) forget(ctx context.Context, l market.LeaseID) error {
	for _, e := range x.of(l) {
		s, h, _ := e.snapshot()
		if !s.State.Ended() {
			continue
		}
		if rt := x.runtimes[e.work.Runtime]; h != nil && rt != nil {
			if err := rt.Destroy(ctx, *h); err != nil {
				return fmt.Errorf("removing an execution: %w", err)
			}
		}
		if err := (workload.Stage{Dir: e.dir}).Remove(); err != nil {
			return fmt.Errorf("removing an execution: %w", err)
		}
		gone := []store.Put{{Kind: kindExecution, Key: execKey(l, s.Seq)}}
		for _, when := range []exclusive.When{exclusive.Before, exclusive.After} {
			gone = append(gone, store.Put{Kind: kindSeen, Key: seenKey(l, s.Seq, when)})
		}
		if err := x.store.Write(ctx, gone...); err != nil {
			return err
		}
		x.mu.Lock()
		delete(x.exec, execKey(l, s.Seq))
		x.mu.Unlock()
		x.dropBlobs(e)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.over, l)
	delete(x.closed, l)
	return nil
}

// dropBlobs releases the files of a forgotten execution that no other one has. Programs stay, so that the next start is
// fast.
func (x *executor) dropBlobs(e *execution) {
	if x.drop == nil {
		return
	}
	x.mu.Lock()
	used := map[cid.Cid]bool{}
	for _, o := range x.exec {
		for _, c := range files(o) {
			used[c] = true
		}
	}
	x.mu.Unlock()
	for _, c := range files(e) {
		if !used[c] {
			x.drop(c)
		}
	}
}

// Blobs are the files that executions need: programs and inputs of those that have not ended, and outputs of all.
func (p *Provider) Blobs() map[cid.Cid]bool {
	p.exec.mu.Lock()
	all := slices.Collect(maps.Values(p.exec.exec))
	p.exec.mu.Unlock()
	out := map[cid.Cid]bool{}
	for _, e := range all {
		e.mu.Lock()
		blobs := []*nodepb.Blob{}
		for _, o := range e.state.Outputs {
			blobs = append(blobs, o.GetBlob())
		}
		if !e.state.State.Ended() {
			blobs = append(blobs, e.work.Module)
			for _, in := range e.work.Inputs {
				blobs = append(blobs, in.GetBlob())
			}
		}
		e.mu.Unlock()
		for _, b := range blobs {
			if c, err := workload.CID(b); err == nil {
				out[c] = true
			}
		}
	}
	return out
}

// files are the inputs and outputs of an execution.
func files(e *execution) (out []cid.Cid) {
	blobs := []*nodepb.Blob{}
	for _, in := range e.work.Inputs {
		blobs = append(blobs, in.GetBlob())
	}
	e.mu.Lock()
	for _, o := range e.state.Outputs {
		blobs = append(blobs, o.GetBlob())
	}
	e.mu.Unlock()
	for _, b := range blobs {
		if c, err := workload.CID(b); err == nil {
			out = append(out, c)
		}
	}
	return out
}

const (
	// sweepEvery is how often ended leases are looked at, and sweepAgain after how long one that cannot be removed is tried again.
	sweepEvery = time.Second
	sweepAgain = 10 * time.Minute
)

// early picks the leases to forget before their time while all take more than most bytes: the largest of the buyer that
// has most here, of equals the oldest. So a buyer that has less than another loses nothing by that one's files.
func early(all []left, most int64) map[market.LeaseID]bool {
	var sum int64
	has, of := map[peer.ID]int64{}, map[peer.ID][]left{}
	for _, l := range all {
		if l.size > 0 {
			sum += l.size
			has[l.buyer] += l.size
			of[l.buyer] = append(of[l.buyer], l)
		}
	}
	for _, ls := range of {
		slices.SortFunc(ls, func(a, b left) int {
			return cmp.Or(cmp.Compare(b.size, a.size), a.until.Compare(b.until), bytes.Compare(a.id[:], b.id[:]))
		})
	}
	out := map[market.LeaseID]bool{}
	for sum > most {
		var first peer.ID
		for b, size := range has {
			if size > has[first] || size == has[first] && b > first {
				first = b
			}
		}
		l := of[first][0]
		of[first] = of[first][1:]
		has[first] -= l.size
		sum -= l.size
		out[l.id] = true
	}
	return out
}

// sweep removes the files of ended leases: those kept for long enough, and some of the rest while it takes too much.
func (p *Provider) sweep(ctx context.Context) {
	now := time.Now()
	var over, rest []left
	for _, l := range p.exec.kept(p.ended(), now) {
		if now.Before(l.until) {
			rest = append(rest, l)
		} else {
			over = append(over, l)
		}
	}
	if p.cfg.RetainBytes > 0 {
		full := early(rest, p.cfg.RetainBytes)
		for _, l := range rest {
			if full[l.id] {
				over = append(over, l)
			}
		}
	}
	for _, l := range over {
		if ctx.Err() != nil || now.Before(p.stuck[l.id]) {
			continue
		}
		if now.Before(l.until) {
			p.cfg.Log.Warn("an ended lease is forgotten early: what is kept takes more than provide.retainMiB, and its buyer has most of it", "lease", l.id, "buyer", l.buyer, "bytes", l.size)
		}
		if err := p.exec.forget(ctx, l.id); err != nil {
			p.cfg.Log.Warn("an ended lease could not be cleaned up", "lease", l.id, "err", err)
			p.stuck[l.id] = now.Add(sweepAgain)
			continue
		}
		delete(p.stuck, l.id)
		p.mu.Lock()
		delete(p.sales, l.id)
		p.mu.Unlock()
	}
}
