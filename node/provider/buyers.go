package provider

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
)

// The kinds of the journal records of buyers, by key: when it was last, in milliseconds since 1970 (u64 little-endian).
const (
	kindBroken = "unfunded" // buyers that did not fund a lease
	kindPayer  = "funded"   // buyers that paid for one
	// maxRemembered is how many of each kind are remembered: of more, those of long ago are forgotten.
	maxRemembered = 4096
	// rememberedFor is how long one is.
	rememberedFor = 30 * 24 * time.Hour
)

// remembered are the buyers of whom this provider knows one thing.
type remembered struct {
	store store.Store
	kind  string

	mu sync.Mutex
	at map[sign.Key]time.Time
}

// loadRemembered reads the records of an earlier process, and forgets old ones.
func loadRemembered(ctx context.Context, s store.Store, kind string, now time.Time) (*remembered, error) {
	b := &remembered{store: s, kind: kind, at: map[sign.Key]time.Time{}}
	var old []store.Put
	err := s.List(ctx, kind, "", func(name string, value []byte) error {
		buyer, err := sign.ParseKey(name)
		if err != nil || len(value) != 8 {
			return fmt.Errorf("reading what is remembered of buyer %s: %d bytes", name, len(value))
		}
		if at := time.UnixMilli(int64(binary.LittleEndian.Uint64(value))); now.Sub(at) < rememberedFor {
			b.at[buyer] = at
		} else {
			old = append(old, store.Put{Kind: kind, Key: name})
		}
		return nil
	})
	if err == nil && len(old) > 0 {
		err = s.Write(ctx, old...)
	}
	return b, err
}

// has reports whether a buyer is remembered.
func (b *remembered) has(buyer sign.Key, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.at[buyer]
	return ok && now.Sub(at) < rememberedFor
}

// add remembers a buyer; after an error only in this process.
func (b *remembered) add(ctx context.Context, buyer sign.Key, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	puts := []store.Put{{Kind: b.kind, Key: buyer.String(), Value: binary.LittleEndian.AppendUint64(nil, uint64(now.UnixMilli()))}}
	if _, known := b.at[buyer]; !known && len(b.at) >= maxRemembered {
		var first sign.Key
		for k, at := range b.at {
			if first.IsZero() || at.Before(b.at[first]) {
				first = k
			}
		}
		delete(b.at, first)
		puts = append(puts, store.Put{Kind: b.kind, Key: first.String()})
	}
	b.at[buyer] = now
	return b.store.Write(ctx, puts...)
}

// record is the lease as the book has it now.
func (x *escrowed) record(s *sale) (lease.Record, bool) {
	x.p.mu.Lock()
	defer x.p.mu.Unlock()
	return x.p.book.Lease(s.rec.Lease)
}

// watch looks for a lease's escrow until the book has it, or FundBy has passed. It goes on after the end of a lease: what
// began early is given back to starts only once its escrow was seen.
func (x *escrowed) watch(ctx context.Context, s *sale) {
	log := x.p.cfg.Log.With("lease", s.rec.Lease)
	funded := false
	defer func() {
		x.starts.Return(s.rec.Lease, funded)
		close(s.funding)
	}()
	missing := false // the chain answered, and had no such escrow
	inTime := false  // the lease ended before its escrow had to be there
	for pause := fundingFirst; ; pause = min(2*pause, fundingLook) {
		r, ok := x.record(s)
		if !ok || r.FundBy == 0 {
			funded = ok
			return
		}
		over := r.State != lease.Active
		if now, err := x.p.cfg.Slots.Now(time.Now()); over && err == nil {
			if now > r.FundBy {
				if missing && !inTime {
					x.distrust(*r.Core, s.promised())
				}
				return
			}
			inTime = true
		}
		landed, wrong, err := x.look(ctx, r)
		missing = errors.Is(err, escrow.ErrNoEscrow) || errors.Is(err, escrow.ErrNoTranche)
		switch {
		case over && err == nil:
			funded = wrong == nil
			return
		case wrong != nil:
			x.distrust(*r.Core, s.promised())
			log.Warn("a lease's escrow is not what its buyer promised", "escrow", r.Escrow, "err", wrong)
			_, err = x.p.step(ctx, lease.FundingWrong{Lease: r.Lease, Reason: wrong.Error()})
		case err == nil:
			_, err = x.p.step(ctx, lease.FundingSeen{Lease: r.Lease, Landed: landed})
		}
		if err == nil {
			continue // the book has it
		}
		log.Debug("a lease's escrow is not on chain yet", "escrow", r.Escrow, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// look reads the lease's escrow and returns the slot in which its leaf landed, or the fault of the escrow. An error
// says nothing about that: the escrow may be there, or come to be.
func (x *escrowed) look(ctx context.Context, r lease.Record) (landed market.Slot, wrong, err error) {
	net, f, err := x.funding(ctx, r)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.QuickAnswer)
	defer cancel()
	view, err := x.Chain.Look(ctx, r.Escrow, []uint16{f.Tranche}, escrow.Confirmed)
	if err != nil {
		return 0, nil, err
	}
	landed, err = escrow.CheckFunding(net, view, *r.Core, r.Keys, f)
	if err == nil || errors.Is(err, escrow.ErrNoEscrow) || errors.Is(err, escrow.ErrNoTranche) {
		return landed, nil, err
	}
	return 0, err, nil
}

func (x *escrowed) funding(ctx context.Context, r lease.Record) (escrow.Net, escrow.Funding, error) {
	net, err := x.Network.Get(ctx)
	if err != nil {
		return net, escrow.Funding{}, err
	}
	f, err := escrow.UnmarshalFunding(r.Funding)
	return net, f, err
}
