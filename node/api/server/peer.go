package server

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/spend"
)

// Blobs stores and reads files, for an API key unless that is empty.
type Blobs interface {
	PutBlob(ctx context.Context, key string, r io.Reader) (string, int64, error)
	OpenBlob(key, cid string) (io.ReadCloser, int64, error)
	NameImage(cid, image string) error
	Stored() ([]api.StoredBlob, error)
	Clean(dry bool) ([]api.StoredBlob, error)
}

// BindBlobs binds the routes of stored files.
func BindBlobs(of Blobs) []route.Bound {
	return []route.Bound{
		api.PutBlob.Bind(func(ctx context.Context, q api.Upload) (record.Blob, error) {
			c, n, err := of.PutBlob(ctx, keyName(ctx), q.Data)
			if err == nil && q.Image != "" {
				err = of.NameImage(c, q.Image)
			}
			return record.Blob{CID: c, Size: n, Tree: q.Tree}, err
		}),
		api.ListBlobs.Bind(func(context.Context, api.None) ([]api.StoredBlob, error) { return of.Stored() }),
		api.CleanBlobs.Bind(func(_ context.Context, q api.DryRun) ([]api.StoredBlob, error) {
			return of.Clean(q.DryRun)
		}),
		api.GetBlob.Bind(func(w http.ResponseWriter, r *http.Request, q api.ByCID) error {
			f, n, err := of.OpenBlob(keyName(r.Context()), q.CID)
			if err != nil {
				return err
			}
			defer f.Close()
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
			if _, err := io.Copy(w, f); err != nil {
				panic(http.ErrAbortHandler) // the answer has begun: only a broken connection signals its end
			}
			return nil
		}),
	}
}

// Keys is the buying side's API keys and their spending.
type Keys interface {
	Spending(days int, key string, all bool) spend.Report
	AddKey(ctx context.Context, name string, l spend.Limits) (spend.Key, string, error)
	RemoveKey(ctx context.Context, name string) error
	Keys() []spend.Key
}

const (
	spendDays    = 7 // if a request does not say
	maxSpendDays = 366
)

// BindKeys binds the routes of spending and of API keys.
func BindKeys(of Keys) []route.Bound {
	return []route.Bound{
		api.GetSpending.Bind(func(ctx context.Context, q api.Days) (s spend.Report, err error) {
			switch {
			case q.Days == 0:
				q.Days = spendDays
			case q.Days > maxSpendDays:
				return s, route.BadRequest("bad_request", "days=%d, want 1 to %d", q.Days, maxSpendDays)
			}
			name := keyName(ctx)
			return of.Spending(q.Days, name, name == ""), nil
		}),
		api.ListKeys.Bind(func(context.Context, api.None) ([]spend.Key, error) { return of.Keys(), nil }),
		api.AddKey.Bind(func(ctx context.Context, q api.NewKey) (api.NewKey, error) {
			made, token, err := of.AddKey(ctx, q.Name, q.Limits)
			return api.NewKey{Name: made.Name, Limits: made.Limits, Token: token}, err
		}),
		api.RemoveKey.Bind(func(ctx context.Context, q api.ByName) (none api.None, err error) {
			return none, of.RemoveKey(ctx, q.Name)
		}),
	}
}

// Peer is the peer itself and its knowledge of others.
type Peer interface {
	Info(ctx context.Context) api.NodeInfo
	Peers() []api.PeerInfo
	// Reputation explains the reputation of a peer, given by id or key.
	Reputation(peer string) (api.PeerReputation, error)
	Ping(ctx context.Context, target string, count int) (api.PingResult, error)
	Guarded() []api.GuardedJob
}

// BindPeer binds the routes of the peer and of others.
func BindPeer(of Peer) []route.Bound {
	return []route.Bound{
		api.GetNode.Bind(func(ctx context.Context, _ api.None) (api.NodeInfo, error) { return of.Info(ctx), nil }),
		api.ListPeers.Bind(func(context.Context, api.None) ([]api.PeerInfo, error) { return of.Peers(), nil }),
		api.GetPeer.Bind(func(_ context.Context,
			q api.ByPeer) (api.PeerReputation, error) {
			return of.Reputation(q.Peer)
		}),
		api.PingPeer.Bind(func(ctx context.Context, q api.PingRequest) (api.PingResult, error) {
			if q.Count < 1 || q.Count > api.MaxPings {
				return api.PingResult{}, route.BadRequest("bad_request", "count: %d is not between 1 and %d", q.Count,
					api.MaxPings)
			}
			return of.Ping(ctx, q.Peer, q.Count)
		}),
		api.ListGuarded.Bind(func(context.Context, api.None) ([]api.GuardedJob, error) { return of.Guarded(), nil }),
	}
}

// Healthy reports the health of a peer.
type Healthy interface{ Health() api.Health }

// BindHealth binds the route of the peer's health.
func BindHealth(of Healthy) []route.Bound {
	return []route.Bound{
		api.GetHealth.Bind(func(context.Context, api.None) (api.Health, error) { return of.Health(), nil }),
	}
}

// Blocks is the block list.
type Blocks interface {
	Add(ctx context.Context, e block.Entry) error
	Remove(ctx context.Context, p sign.Key) error
	Entries() []block.Entry
}

// BindBlocks binds the routes of the block list.
func BindBlocks(of Blocks) []route.Bound {
	return []route.Bound{
		api.ListBlocks.Bind(func(context.Context, api.None) ([]block.Entry, error) { return of.Entries(), nil }),
		api.AddBlock.Bind(func(ctx context.Context, q api.Block) (block.Entry, error) {
			var err error
			e := q.Body
			if e.Peer, err = parsePeer(q.Peer); err != nil {
				return e, err
			}
			e.At = time.Now().UTC()
			return e, of.Add(ctx, e)
		}),
		api.RemoveBlock.Bind(func(ctx context.Context, q api.ByPeer) (none api.None, err error) {
			p, err := parsePeer(q.Peer)
			if err != nil {
				return none, err
			}
			return none, of.Remove(ctx, p)
		}),
	}
}

func parsePeer(text string) (sign.Key, error) {
	k, err := sign.ParseKey(text)
	if err != nil {
		return k, route.BadRequest("bad_peer", "%.80q is not a peer's key", text)
	}
	return k, nil
}

// Market is the offers and quotes that the peer finds, and the leases that it sold.
type Market interface {
	Offers(ctx context.Context, class string) ([]api.OfferInfo, error)
	Leases() []api.SoldLease
}

// BindMarket binds the routes of offers and of sold leases.
func BindMarket(of Market) []route.Bound {
	return []route.Bound{
		api.ListOffers.Bind(func(ctx context.Context,
			q api.ByClass) ([]api.OfferInfo, error) {
			return of.Offers(ctx, q.Class)
		}),
		api.ListLeases.Bind(func(context.Context, api.None) ([]api.SoldLease, error) { return of.Leases(), nil }),
	}
}

// Operator changes the peer's own offers.
type Operator interface {
	OwnOffers() (api.OwnOffers, error)
	// PauseOffers sells nothing new; with drain, because the peer is to be stopped.
	PauseOffers(ctx context.Context, drain bool) error
	// ResumeOffers sells again. With devices it sells these withdrawn ones again, and nothing else changes.
	ResumeOffers(ctx context.Context, devices []string) error
	PriceOffer(ctx context.Context, class market.Class, price market.Price) error
}

// Shelf has the images of a peer: those pushed for its own jobs, and those brought for jobs of others.
type Shelf interface {
	Images(ctx context.Context) ([]api.ImageInfo, error)
	// RemoveImage removes an image that nothing uses.
	RemoveImage(ctx context.Context, id string) error
}

// BindShelf binds the routes of the images that stay.
func BindShelf(of Shelf) []route.Bound {
	return []route.Bound{
		api.ListImages.Bind(func(ctx context.Context, _ api.None) ([]api.ImageInfo, error) { return of.Images(ctx) }),
		api.RemoveImage.Bind(func(ctx context.Context, q api.ByID) (none api.None, err error) {
			return none, of.RemoveImage(ctx, q.ID)
		}),
	}
}

// BindOperator binds the routes of the peer's own offers. Each answers with the offers as they then are.
func BindOperator(of Operator) []route.Bound {
	then := func(err error) (api.OwnOffers, error) {
		if err != nil {
			return api.OwnOffers{}, err
		}
		return of.OwnOffers()
	}
	return []route.Bound{
		api.GetOwnOffers.Bind(func(context.Context, api.None) (api.OwnOffers, error) { return of.OwnOffers() }),
		api.PauseOffers.Bind(func(ctx context.Context, _ api.None) (api.OwnOffers, error) {
			return then(of.PauseOffers(ctx, false))
		}),
		api.DrainOffers.Bind(func(ctx context.Context, _ api.None) (api.OwnOffers, error) {
			return then(of.PauseOffers(ctx, true))
		}),
		api.ResumeOffers.Bind(func(ctx context.Context, q api.ResumeRequest) (api.OwnOffers, error) {
			return then(of.ResumeOffers(ctx, q.Devices))
		}),
		api.PriceOffer.Bind(func(ctx context.Context, q api.PriceRequest) (api.OwnOffers, error) {
			return then(of.PriceOffer(ctx, q.Class, q.Price))
		}),
	}
}
