package provider

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/node/runtime"
)

const (
	// readyEvery is the interval between two listings of the images that are here.
	readyEvery = time.Minute
	// listWithin bounds the wait for a container engine.
	listWithin = 10 * time.Second
)

// ready is the images that the offers name: those here that their registries gave without credentials, in the order of
// their last use.
type ready struct {
	names atomic.Pointer[[]images.Prefix]
}

// Ready returns the images as they were a minute ago at most.
func (r *ready) Ready() []images.Prefix {
	if names := r.names.Load(); names != nil {
		return *names
	}
	return nil
}

// watch lists the images until ctx ends. The first ones change the offers; later ones wait for the next renewal, so that
// buyers cause no renewals by what they run.
func (r *ready) watch(ctx context.Context, p *Provider) {
	var kept []runtime.Shelver
	for _, rt := range p.cfg.Runtimes {
		if s, ok := rt.(runtime.Shelver); ok {
			kept = append(kept, s)
		}
	}
	if len(kept) == 0 {
		return
	}
	logged := false
	for {
		all, err := shelved(ctx, kept)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !logged {
			p.cfg.Log.Warn("the images that are here cannot be listed; the offers name none", "err", err)
		}
		logged = err != nil
		names, before := named(all), r.Ready()
		r.names.Store(&names)
		if len(before) == 0 && len(names) > 0 {
			p.board.Change()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(readyEvery):
		}
	}
}

// shelved lists the images of some runtimes.
func shelved(ctx context.Context, kept []runtime.Shelver) (all []runtime.ShelvedImage, err error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	for _, s := range kept {
		some, err := s.Shelved(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// named returns the prefixes of the images that offers may name, those used last first. An image that needed
// credentials, or that a buyer pushed, is not among them.
func named(all []runtime.ShelvedImage) (names []images.Prefix) {
	slices.SortFunc(all, func(a, b runtime.ShelvedImage) int { return b.Used.Compare(a.Used) })
	for _, i := range all {
		if i.Open {
			names = append(names, images.PrefixOf("@"+i.Digest))
		}
	}
	return names
}
