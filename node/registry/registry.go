// Package registry is the one list of on-chain registrations that all parts of a peer read: the parts that draw
// committees, check rewards, accuse liars and weigh reputations. Listing is expensive for an endpoint, so all of them
// share one list:
//
//	audits, rewards, lies, evidence, reputation ──▶ Registry ──(one listing at a time, at most every Fresh)──▶ chain
//
// Its lists are at most Fresh old while the chain answers. Otherwise it returns the last list until that is Kept old,
// and then an error with the age.
package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

const (
	// Timeout bounds one listing.
	Timeout = 10 * time.Second
	// Kept is how old the last list may grow while the chain is away.
	Kept = 10 * time.Minute
)

// ErrStale is returned if the chain does not list registrations and the last list is too old.
var ErrStale = errors.New("the list of registrations is too old")

// Chain lists all registrations of a network; a *solana.Ledger. Many public endpoints do not answer this.
type Chain interface {
	Providers(ctx context.Context) ([]account.Provider, error)
}

// Config is the surroundings of a Registry; all of it is required.
type Config struct {
	Chain Chain
	// Fresh is how old a list may be while the chain answers.
	Fresh time.Duration
	Now   func() time.Time
	Log   *slog.Logger
}

// Registry caches the list of registrations. It starts no goroutine: the first caller after the list is old reads the
// chain, and concurrent callers wait for it.
type Registry struct {
	cfg  Config
	turn chan struct{} // holds one while the chain is listed

	mu    sync.Mutex
	all   []account.Provider
	at    time.Time // all is of then; zero while nothing was listed
	tried time.Time // the chain was read last
	err   error     // the result of that
}

// New returns a registry without a list.
func New(cfg Config) *Registry { return &Registry{cfg: cfg, turn: make(chan struct{}, 1)} }

// known returns the cached list. It reports false if the list must be read from the chain. After a failure it reports
// false again after Fresh.
func (r *Registry) known() (all []account.Provider, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	switch listed := !r.at.IsZero(); {
	case listed && now.Sub(r.at) < r.cfg.Fresh:
		return r.all, true, nil
	case r.err == nil || now.Sub(r.tried) >= r.cfg.Fresh:
		return nil, false, nil
	case listed && now.Sub(r.at) < Kept:
		return r.all, true, nil
	case listed:
		return nil, true, fmt.Errorf("%w, of %s ago: %w", ErrStale, now.Sub(r.at).Round(time.Second), r.err)
	}
	return nil, true, r.err
}

// Providers are all registrations, in the order in which the chain lists them; the slice is others' too, and not to be
// changed. Errors: the chain's, ErrStale with it, ctx's.
func (r *Registry) Providers(ctx context.Context) ([]account.Provider, error) {
	if all, ok, err := r.known(); ok {
		return all, err
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.turn }()
	if all, ok, err := r.known(); ok { // the holder of the turn before listed it
		return all, err
	}
	if err := r.list(ctx); err != nil {
		return nil, err
	}
	all, _, err := r.known()
	return all, err
}

// list reads the list from the chain; the caller holds the turn. If ctx ended it returns ctx's error, so that other
// callers do not wait.
func (r *Registry) list(ctx context.Context) error {
	lctx, cancel := context.WithTimeout(ctx, Timeout)
	all, err := r.cfg.Chain.Providers(lctx)
	cancel()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	if err != nil && r.err == nil {
		r.cfg.Log.Warn("registrations cannot be listed; the last list counts for a while",
			"err", err, "listed", r.at, "providers", len(r.all))
	}
	r.tried, r.err = now, err
	if err == nil {
		r.all, r.at = all, now
	}
	return nil
}

// Stakes returns the stakes of peers; an unregistered peer has 0. Its errors are those of Providers.
func (r *Registry) Stakes(ctx context.Context, of []sign.Key) (map[sign.Key]market.Amount, error) {
	all, err := r.Providers(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[sign.Key]market.Amount, len(of))
	for _, k := range of {
		out[k] = 0
	}
	for _, p := range all {
		if _, asked := out[p.Peer]; asked {
			out[p.Peer] = market.Amount(p.Stake)
		}
	}
	return out, nil
}

// Staked returns the keys of registrations with something at stake.
func Staked(all []account.Provider) map[sign.Key]bool {
	staked := map[sign.Key]bool{}
	for _, p := range all {
		if p.Stake+p.Unbonding > 0 {
			staked[p.Peer] = true
		}
	}
	return staked
}
