package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
)

// Obtain brings a blob into the store: from its origin, from its URLs if this peer reads any, otherwise from its peer.
// A fellow that has it sends it instead of the origin or a URL's server. A stored blob is not transferred under the
// conditions of Fetch, or if it came from this origin or one of these URLs before, for any peer, and the URL is no
// secret. Otherwise the server has to send it again, as a peer does.
func (f *Files) Obtain(ctx context.Context, at workload.Places, c cid.Cid, max int64) error {
	if at.Origin == nil && (len(at.URLs) == 0 || f.cfg.Web == nil) {
		return f.fetch(ctx, at, c, max)
	}
	free, err := f.flights.enter(ctx, flight{at.Peer, c.KeyString()})
	if err != nil {
		return err
	}
	defer free()
	failed := f.download(ctx, at, c, max)
	if failed == nil || at.Origin != nil || ctx.Err() != nil || workload.NoRoom(failed) ||
		errors.Is(failed, blob.ErrTooLarge) {
		return failed
	}
	err = f.fetch(ctx, at, c, max)
	if err == nil {
		f.cfg.Log.Debug("an input came from its buyer, not from its URL", "cid", c, "err", failed)
		return nil
	}
	return errors.Join(failed, err)
}

// originOf returns the place of a blob that is no peer, and the holders of what comes from it: the peer, and the places
// that are no secret.
func originOf(c *web.Client, at workload.Places) (o origin, holders []string) {
	holders = []string{workload.Holder(at.Peer)}
	if at.Origin != nil {
		return at.Origin, append(holders, urlHolder(at.Origin.Name()))
	}
	for _, u := range at.URLs {
		if !web.Signed(u) {
			holders = append(holders, urlHolder(u))
		}
	}
	return site{c.File(at.URLs, at.Size)}, holders
}

// admit waits until a download may begin. The returned function is called with its error.
func (f *Files) admit(ctx context.Context, at workload.Places) (done func(error), err error) {
	if at.Origin != nil {
		return func(error) {}, nil
	}
	return f.cfg.Web.Admit(ctx, at.Peer.String())
}

// download brings a blob from its origin or its URLs.
func (f *Files) download(ctx context.Context, at workload.Places, c cid.Cid, max int64) error {
	source, holders := originOf(f.cfg.Web, at)
	r := relay{f, source, at, c}
	for {
		stored := f.cfg.Blobs.Has(c)
		if stored && f.mayRead(at.Peer, c, holders) {
			if at.Peer == f.cfg.Host.ID() {
				return nil // its own blobs have no holders
			}
			return f.cfg.Blobs.Bring(c, holders[0])
		}
		var from blob.Source = source
		if !stored {
			from = r.source(ctx)
		}
		done, err := f.admit(ctx, at)
		if err != nil {
			return err
		}
		fresh := true
		if stored {
			err = f.prove(ctx, source, c, max, holders)
		} else {
			fresh, err = r.receive(ctx, from, max, holders)
		}
		if workload.NoRoom(err) {
			done(nil) // not the buyer's doing
		} else {
			done(err)
		}
		if errors.Is(err, blob.ErrDigest) && at.Origin == nil {
			return &web.Failure{Class: web.ErrAbsent, URL: web.Public(at.URLs[0]), Cause: err,
				Advice: "SHA-256 mismatch: want " + digest(c)}
		}
		if err != nil || fresh {
			return err
		}
		// Another's download stored it meanwhile.
	}
}

// prove has a source send a stored blob, and notes its holders then.
func (f *Files) prove(ctx context.Context, from blob.Source, c cid.Cid, max int64, holders []string) error {
	if err := blob.NewProof(f.cfg.Blobs, c).Take(ctx, from, max, nil); err != nil {
		return err
	}
	for _, h := range holders {
		if err := f.cfg.Blobs.Bring(c, h); err != nil {
			return err
		}
	}
	return nil
}

// mayRead reports whether a peer may read a stored blob here, as itself or as one of some holders.
func (f *Files) mayRead(id peer.ID, c cid.Cid, holders []string) bool {
	if id == f.cfg.Host.ID() || f.grants.allowed(id, c) {
		return true
	}
	for _, h := range holders {
		if f.cfg.Blobs.Brought(c, h) {
			return true
		}
	}
	return false
}

// urlHolder is the holder of blobs from a URL that all peers may read.
func urlHolder(u string) string {
	h := sha256.Sum256([]byte(u))
	return "url " + hex.EncodeToString(h[:])
}

// digest is the SHA-256 in a blob's CID.
func digest(c cid.Cid) string {
	h, err := workload.Content(c)
	if err != nil {
		return fmt.Sprint(c)
	}
	return hex.EncodeToString(h[:])
}

// flights are the downloads under way for peers: one at a time of a blob for a peer, so that its executions share it.
type flights struct {
	mu  sync.Mutex
	out map[flight]chan struct{} // closed at its end
}

type flight struct {
	by  peer.ID
	cid string
}

// enter waits until no other flight is out, and returns the function that ends this one.
func (f *flights) enter(ctx context.Context, of flight) (leave func(), err error) {
	for {
		f.mu.Lock()
		busy := f.out[of]
		if busy == nil {
			if f.out == nil {
				f.out = map[flight]chan struct{}{}
			}
			ended := make(chan struct{})
			f.out[of] = ended
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				delete(f.out, of)
				f.mu.Unlock()
				close(ended)
			}, nil
		}
		f.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
