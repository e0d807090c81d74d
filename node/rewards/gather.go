package rewards

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain/rewards"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
)

// Kind is the kind of a document.
type Kind uint8

// The kinds; their numbers are those of the stream.
const (
	Units        Kind = 1 // IDs of a provider's units with certificates
	Certificates Kind = 2 // of one of them
	Table        Kind = 3 // that a ballot names
	Payees       Kind = 4 // under a root
	Guarded      Kind = 5 // names of claims that were paid under a guardian's word
)

// Document identifies a document that can be requested.
type Document struct {
	Kind     Kind
	Epoch    uint64
	Provider sign.Key      // of units and certificates; the guardian
	Unit     market.UnitID // of certificates
	Root     sign.Hash     // of payees; the hash of a table
}

const (
	maxUnits   = rewards.MaxUnitsOf * sign.HashSize
	maxGuarded = rewards.MaxGuardedBy * sign.SignatureSize
)

// archive is the documents of this peer, and of others as it reads them.
type archive struct {
	cfg  Config
	keep *keep

	mu      sync.Mutex
	listed  uint64                      // before this epoch this peer has its claims as a guardian together
	windows map[audit.Window]audit.Seen // that certificates were held against
}

// Document returns one of this peer's documents. It returns ErrNoDocument.
func (r *archive) Document(ctx context.Context, d Document) ([]byte, error) {
	var out []byte
	var err error
	switch d.Kind {
	case Table:
		out, err = tableTable.Get(ctx, r.cfg.Store, awardKey(d.Epoch, d.Root))
	case Payees:
		out, err = r.keep.awarded(ctx, d.Epoch, d.Root)
	case Units, Certificates:
		out, err = r.proofs(ctx, d)
	case Guarded:
		out, err = r.names(ctx, d)
	}
	if err == nil && len(out) == 0 || errors.Is(err, store.ErrNotFound) {
		return nil, ErrNoDocument
	}
	return out, err
}

// proofs are the units of a provider, or the certificates of one.
func (r *archive) proofs(ctx context.Context, d Document) ([]byte, error) {
	n, err := r.cfg.Chain.Network(ctx)
	if err != nil {
		return nil, err
	}
	e, err := rewards.EpochOf(n.Params.Votes, r.cfg.Genesis.AuditSlots, d.Epoch)
	if err != nil {
		return nil, ErrNoDocument
	}
	if d.Kind == Certificates {
		cs, err := r.keep.certificates(ctx, e, rewards.UnitKey{Provider: d.Provider, Unit: d.Unit})
		return rewards.MarshalCertificates(cs), err
	}
	units, err := r.keep.units(ctx, e, d.Provider)
	var out []byte
	for _, u := range units[:min(len(units), rewards.MaxUnitsOf)] {
		out = append(out, u[:]...)
	}
	return out, err
}

// read requests a document from a peer; this peer has its own.
func (r *archive) read(ctx context.Context, from sign.Key, d Document, most int) ([]byte, error) {
	if from == r.cfg.Key {
		return r.Document(ctx, d)
	}
	return r.cfg.Peers.Read(ctx, from, d, most)
}

const (
	// gatherers is the number of providers that are requested at a time. gatherTime is the time limit of one provider
	// for all its units: a slower one gets another request, and its certificates are kept.
	gatherers  = 16
	gatherTime = 2 * time.Minute
	// checkTime bounds the time to see the certificates behind a table.
	checkTime = 10 * time.Minute
)

// asked has the providers with fetched certificates of an epoch, and the slot of the last requests.
type asked struct {
	had  map[sign.Key]bool
	last market.Slot
}

// gatherer fetches other peers' documents. Only one pass at a time uses it.
type gatherer struct {
	*archive
	gathered map[uint64]*asked // by epoch
}

// gather fetches every provider's certificates of an epoch, once each, and keeps the good ones. A provider that does
// not answer, or has none of an epoch that has just ended, gets another request, but not in each pass.
func (r *gatherer) gather(ctx context.Context, l *look, e rewards.Epoch) error {
	a := r.gathered[e.Number]
	wait := rewards.TurnSlots(l.network.Params.Votes) / 2
	if e.Number < l.last {
		wait = max(wait, l.network.Params.Votes.VotingSlots)
	}
	switch {
	case a == nil:
		a = &asked{had: map[sign.Key]bool{r.cfg.Key: true}}
		r.gathered[e.Number] = a
	case uint64(l.now) < uint64(a.last)+wait:
		return nil
	}
	a.last = l.now
	for old := range r.gathered {
		if old+maxBehind < e.Number {
			delete(r.gathered, old)
		}
	}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(gatherers)
	for _, p := range l.peers {
		if p.WasSlashed || a.had[p.Peer] {
			continue
		}
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, gatherTime)
			defer cancel()
			err := r.gatherFrom(ctx, p.Peer, e)
			if err == nil || errors.Is(err, ErrNoDocument) {
				err = errors.Join(err, r.gatherGuarded(ctx, l, p.Peer, e.Number))
			}
			if err != nil && !(errors.Is(err, ErrNoDocument) && e.Number < l.last) {
				r.cfg.Log.Debug("a provider's certificates are not to be had",
					"provider", p.Peer, "epoch", e.Number, "err", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			a.had[p.Peer] = true
			return nil
		})
	}
	return errors.Join(g.Wait(), ctx.Err())
}

func (r *gatherer) gatherFrom(ctx context.Context, p sign.Key, e rewards.Epoch) error {
	b, err := r.read(ctx, p, Document{Kind: Units, Epoch: e.Number, Provider: p}, maxUnits)
	if err != nil {
		return err
	}
	for ; len(b) >= sign.HashSize; b = b[sign.HashSize:] {
		cs, err := r.fetch(ctx, p, e, rewards.UnitKey{Provider: p, Unit: market.UnitID(b[:sign.HashSize])})
		if err != nil {
			return err
		}
		if err := r.keep.add(ctx, cs); err != nil {
			return err
		}
	}
	return nil
}

// fetch requests the certificates of a unit from a peer and checks each. If any is wrong, all are refused.
func (r *archive) fetch(
	ctx context.Context, from sign.Key, e rewards.Epoch, u rewards.UnitKey,
) ([]audit.Certificate, error) {
	most := min(rewards.MaxCertificates, int(e.Windows())*audit.MaxCertificate)
	b, err := r.read(ctx, from, Document{Kind: Certificates, Epoch: e.Number, Provider: u.Provider, Unit: u.Unit}, most)
	if err != nil {
		return nil, err
	}
	cs, err := rewards.UnmarshalCertificates(b)
	if err != nil {
		return nil, err
	}
	// First check that all are of this unit, in order and unique.
	if _, err := rewards.Count(e, u, cs); err != nil {
		return nil, err
	}
	for _, c := range cs {
		if err := r.checkOne(ctx, c); err != nil {
			return nil, fmt.Errorf("certificate of unit %s in window %d: %w", u.Unit.Short(), c.Target().Window, err)
		}
	}
	return cs, nil
}
