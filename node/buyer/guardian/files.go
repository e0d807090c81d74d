package guardian

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
)

// fetch brings the files of a job that are not here yet, once its wage is on chain; the channel is closed when that
// ended. w is locked.
func (s *Service) fetch(w *ward) <-chan struct{} {
	if w.fetching || w.complete || !w.Unbacked.IsZero() {
		return w.fetched
	}
	over := make(chan struct{})
	w.fetched, w.fetching = over, true
	if !s.start(func(ctx context.Context) { s.fetchAll(ctx, w, over) }) {
		w.fetching = false
		close(over)
	}
	return over
}

// fetchAll fetches missing files until there are none: first the engagement's, from its owner, then the state's, from
// its supervisor, or else from any peer that may have them.
func (s *Service) fetchAll(ctx context.Context, w *ward, over chan struct{}) {
	defer close(over)
	for {
		w.mu.Lock()
		v, st := w.Ward, w.state
		w.mu.Unlock()
		ok := s.bring(ctx, v, v.Files, v.Owner)
		if ok && st != nil {
			ok = s.bring(ctx, v, st.Files, v.Supervisor(st.Epoch))
		}
		w.mu.Lock()
		if ok && !w.Ready && !w.Dismissed {
			next := w.Ward
			next.Ready = true
			if err := s.write(ctx, next); err == nil {
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

// bring fetches files from a peer, or else from another that has a part in the job, and lets those read them.
func (s *Service) bring(ctx context.Context, w Ward, files []File, from sign.Key) bool {
	peers := slices.Concat([]sign.Key{from, w.Owner}, w.Keys.Keys)
	for _, f := range files {
		var failed []error
		got := false
		for i, k := range peers {
			if k == s.self && k != from || slices.Index(peers, k) < i {
				continue // files that this peer itself stated as supervisor may be its own, and are here then
			}
			id, err := remember(s.cfg.Host, k, w.addrs(k))
			if err == nil {
				err = s.cfg.Fetch(ctx, id, f.CID, f.Size)
			}
			if got = err == nil; got {
				break
			}
			failed = append(failed, err)
		}
		if !got {
			s.cfg.Log.Warn("a file of a guarded job cannot be had",
				"job", w.Job.Short(), "file", f.CID, "err", errors.Join(failed...))
			return false
		}
		s.share(w, f)
	}
	return true
}

// share lets the participants of the job read a file.
func (s *Service) share(w Ward, f File) {
	for _, k := range append(slices.Clone(w.Keys.Keys), w.Owner) {
		if id, err := p2p.PeerIDFromKey(k); err == nil && k != s.self {
			s.cfg.Grant(id, f.CID)
		}
	}
}

// addrs are where a peer that has a part in the job may be reached.
func (w Ward) addrs(k sign.Key) []string {
	if i := slices.Index(w.Keys.Keys, k); i >= 0 {
		return w.Members[i].Addrs
	}
	return w.Addrs
}
