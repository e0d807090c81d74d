package wards

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/p2p"
)

// fetcher fetches the files of wards.
type fetcher struct {
	*guard
	tasks *tasks
}

// fetch brings the files of a job that are not here yet, once its wage is on chain; the channel is closed when that
// ended. w is locked.
func (x *fetcher) fetch(w *guarded) <-chan struct{} {
	if w.fetching || w.complete || !w.Unbacked.IsZero() {
		return w.fetched
	}
	over := make(chan struct{})
	w.fetched, w.fetching = over, true
	if !x.tasks.start(func(ctx context.Context) { x.fetchAll(ctx, w, over) }) {
		w.fetching = false
		close(over)
	}
	return over
}

// fetchAll fetches missing files until none is missing: first the engagement's from the owner, then the state's from
// the supervisor. If these peers fail, it tries any peer that may have them.
func (x *fetcher) fetchAll(ctx context.Context, w *guarded, over chan struct{}) {
	defer close(over)
	for {
		w.mu.Lock()
		v, st := w.Ward, w.state
		w.mu.Unlock()
		ok := x.bring(ctx, v, v.Files, v.Owner)
		if ok && st != nil {
			ok = x.bring(ctx, v, st.Files, v.Supervisor(st.Epoch))
		}
		w.mu.Lock()
		if ok && !w.Ready && !w.Dismissed {
			next := w.Ward
			next.Ready = true
			if err := x.write(ctx, next); err == nil {
				w.Ward = next
				w.heard = time.Now()
			}
		}
		again := ok && w.state != st
		w.fetching, w.complete, w.tried = again, ok && !again, time.Now()
		w.mu.Unlock()
		if !again {
			return
		}
	}
}

// bring fetches files from a peer, or else from another participant of the job, and grants the participants access.
func (x *fetcher) bring(ctx context.Context, w Ward, files []guardian.File, from sign.Key) bool {
	peers := slices.Concat([]sign.Key{from, w.Owner}, w.Keys.Keys)
	for _, f := range files {
		var failed []error
		got := false
		for i, k := range peers {
			if k == x.self && k != from || slices.Index(peers, k) < i {
				continue // files that this peer itself stated as supervisor may be its own, and are here then
			}
			id, err := x.cfg.Host.Remember(k, w.addrs(k))
			if err == nil {
				err = x.cfg.Files.Fetch(ctx, id, f.CID, f.Size)
			}
			if got = err == nil; got {
				break
			}
			failed = append(failed, err)
		}
		if !got {
			x.cfg.Log.Warn("fetching a file of a guarded job failed",
				"job", w.Job.Short(), "file", f.CID, "err", errors.Join(failed...))
			return false
		}
		x.share(w, f)
	}
	return true
}

// share grants the participants of the job access to a file.
func (x *fetcher) share(w Ward, f guardian.File) {
	for _, k := range append(slices.Clone(w.Keys.Keys), w.Owner) {
		if id, err := p2p.PeerIDFromKey(k); err == nil && k != x.self {
			x.cfg.Files.Share(id, f.CID)
		}
	}
}

// drop releases files that a ward no longer needs.
func (x *fetcher) drop(old []guardian.File, w *guarded) {
	needed := w.needed()
	for _, f := range old {
		if !slices.ContainsFunc(needed, func(n guardian.File) bool { return n.CID == f.CID }) {
			x.cfg.Files.Drop(f.CID)
		}
	}
}
