package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/market"
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
	names atomic.Pointer[[]market.ImagePrefix]
}

// Ready returns the images as they were a minute ago at most.
func (r *ready) Ready() []market.ImagePrefix {
	if names := r.names.Load(); names != nil {
		return *names
	}
	return nil
}

// watch lists the images until ctx ends. The first ones change the offers; later ones wait for the next renewal, so
// that buyers cause no renewals by the images that they run.
func (r *ready) watch(ctx context.Context, p *Provider) {
	if len(p.shelvers()) == 0 {
		return
	}
	logged := false
	for {
		all, err := p.Shelved(ctx)
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

// shelvers are the runtimes that keep images.
func (p *Provider) shelvers() (kept []runtime.Shelver) {
	for _, rt := range p.cfg.Runtimes {
		if s, ok := rt.(runtime.Shelver); ok {
			kept = append(kept, s)
		}
	}
	return kept
}

// Shelved lists the images that were brought for executions and stay, those used last first.
func (p *Provider) Shelved(ctx context.Context) (all []runtime.ShelvedImage, err error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	for _, s := range p.shelvers() {
		some, err := s.Shelved(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b runtime.ShelvedImage) int {
		return cmp.Or(b.Used.Compare(a.Used), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// Unshelve removes an image that nothing uses. It returns runtime.ErrNoImage or runtime.ErrImageUsed.
func (p *Provider) Unshelve(ctx context.Context, id string) error {
	for _, s := range p.shelvers() {
		if err := s.Unshelve(ctx, id); !errors.Is(err, runtime.ErrNoImage) {
			return err
		}
	}
	return fmt.Errorf("%w: %.100q", runtime.ErrNoImage, id)
}

// named returns the prefixes of the images that offers may name. An image that needed credentials, or that a buyer
// pushed, is not among them.
func named(all []runtime.ShelvedImage) (names []market.ImagePrefix) {
	for _, i := range all {
		if i.Open {
			names = append(names, market.PrefixOf("@"+i.Digest))
		}
	}
	return names
}
