package wards

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/p2p"
)

// maxFetches bounds the wards whose files are fetched at a time: other calls of wards must not wait for files.
const maxFetches = 64

// fetcher fetches the files of wards.
type fetcher struct {
	*guard
	under chan struct{} // has a token for each fetch under way
}

// arrange drops files of a ward and brings missing ones: first the engagement's from the owner, then the state's from
// the supervisor. If these peers fail, it tries any peer that may have them. It brings none while too many wards do.
func (x *fetcher) arrange(ctx context.Context, f arrange) event {
	x.drop(f.stale)
	out := arranged{of: f.state, tried: f.bring}
	if !f.bring {
		return out
	}
	select {
	case x.under <- struct{}{}:
		defer func() { <-x.under }()
	default:
		return out
	}
	if out.ok = x.bring(ctx, f.ward, f.ward.Files, f.ward.Owner); f.state == nil || !out.ok {
		out.whole = out.ok
		return out
	}
	from, all := f.ward.Supervisor(f.state.Epoch), slices.Concat(f.ward.Files, f.state.Files)
	spare := func(f guardian.File) bool { return f.Spare }
	out.ok = x.bring(ctx, f.ward, slices.DeleteFunc(slices.Clone(f.state.Files), spare), from)
	out.whole = out.ok
	for left, i := x.maxBytes-guardian.BytesOf(all), 0; out.ok && i < len(all); i++ {
		if f2 := all[i]; f2.Spare && f2.Size <= left {
			left -= f2.Size
			if !x.bring(ctx, f.ward, []guardian.File{f2}, from) {
				out.whole = false
				continue
			}
			out.spare = append(out.spare, f2.CID)
		}
	}
	return out
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
			level := slog.LevelWarn
			if f.Spare {
				level = slog.LevelDebug
			}
			x.cfg.Log.Log(ctx, level, "fetching a file of a guarded job failed",
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

// drop releases files that no ward needs.
func (x *fetcher) drop(files []guardian.File) {
	if len(files) == 0 {
		return
	}
	needed := x.blobs()
	var unused []cid.Cid
	for _, f := range files {
		if !needed[f.CID] {
			needed[f.CID] = true // once
			unused = append(unused, f.CID)
		}
	}
	x.cfg.Files.Drop(unused...)
}
