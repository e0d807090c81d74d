package mystery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	probes "github.com/starling-network/starling/node/exclusive"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/exclusive"
)

// What probes showed is given to everybody, by the verifier, when nothing can be learned from it any more about who still rents: when an
// identity has made its last purchase, Quiet has passed since, and the day of UTC has ended. Then all of its records become public in one
// instant, with those of every other identity whose turn has come that day.
const (
	// Quiet is how long after the last of an identity's purchases nothing of it is public.
	Quiet = 48 * time.Hour
	// heldProbes is how many records of a purchase are kept: the wrong ones, then the latest.
	heldProbes = 16
	// maxHeld is how many records are kept before a purchase's are: what is public, and as many that are not yet.
	maxHeld = 2 * protocol.MaxProbes
	// lookAgain is for how long what is public is taken to be so: it changes once a day.
	lookAgain = time.Minute
	// kindHeld is a record by purchase/hash.
	kindHeld = "mystery-probe"
)

// public is what everybody may have, as it was looked up last.
type public struct {
	mu   sync.Mutex
	at   time.Time
	keys map[sign.Hash]string // in the journal
	list []sign.Hash          // ascending
}

// hold keeps a purchase's records with what more is to be written, and drops those of the oldest purchases.
func (s *Service) hold(ctx context.Context, p Purchase, all []exclusive.Record, more ...store.Put) error {
	wrong := func(r exclusive.Record) int {
		if exclusive.Wrong(exclusive.CheckOpened(r.Question, r.Answer(), r.Draw, r.Openings)) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b exclusive.Record) int {
		return cmp.Or(cmp.Compare(wrong(a), wrong(b)), cmp.Compare(b.Question.At, a.Question.At))
	})
	var keys []string
	if err := s.cfg.Store.List(ctx, kindHeld, "", func(key string, _ []byte) error { keys = append(keys, key); return nil }); err != nil {
		return err
	}
	for _, key := range keys[:max(len(keys)-maxHeld, 0)] { // purchases are in the order of time
		more = append(more, store.Put{Kind: kindHeld, Key: key})
	}
	for _, r := range all[:min(len(all), heldProbes)] {
		more = append(more, store.Put{Kind: kindHeld, Key: p.ID + "/" + r.Hash().String(), Value: r.Marshal()})
	}
	return s.cfg.Store.Write(ctx, more...)
}

// published are the purchases whose records are public at a time: those of identities that will never rent again.
func published(all []Purchase, now time.Time) map[string]bool {
	type life struct {
		uses int
		open bool // a purchase is not done
		last time.Time
	}
	lives := map[string]life{}
	for _, p := range all {
		l := lives[p.Identity]
		l.uses, l.open = l.uses+1, l.open || !p.Done
		for _, t := range []time.Time{p.At, p.Over} {
			if t.After(l.last) {
				l.last = t
			}
		}
		lives[p.Identity] = l
	}
	out := map[string]bool{}
	for _, p := range all {
		if l := lives[p.Identity]; l.uses >= MaxUses && !l.open && !now.Before(due(l.last)) {
			out[p.ID] = true
		}
	}
	return out
}

// due is the end of the day of UTC in which an identity has been quiet for long enough.
func due(last time.Time) time.Time {
	return last.Add(Quiet).UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
}

// look finds what is public at a time: the records of the newest purchases where there are too many. The lock of public is held.
func (s *Service) look(ctx context.Context, now time.Time) error {
	p := &s.public
	if p.keys != nil && now.Sub(p.at) < lookAgain && !now.Before(p.at) {
		return nil
	}
	all, err := s.Purchases(ctx)
	if err != nil {
		return err
	}
	of := published(all, now)
	var keys []string
	if err := s.cfg.Store.List(ctx, kindHeld, "", func(key string, _ []byte) error {
		if id, _, ok := strings.Cut(key, "/"); ok && of[id] {
			keys = append(keys, key)
		}
		return nil
	}); err != nil {
		return err
	}
	found, list := map[sign.Hash]string{}, []sign.Hash{}
	for _, key := range keys[max(len(keys)-protocol.MaxProbes, 0):] { // purchases are in the order of time
		_, text, _ := strings.Cut(key, "/")
		h, err := sign.ParseHash(text)
		if err != nil {
			return fmt.Errorf("reading the record of a probe %s: %w", key, err)
		}
		if found[h] == "" {
			list = append(list, h)
		}
		found[h] = key
	}
	slices.SortFunc(list, func(a, b sign.Hash) int { return slices.Compare(a[:], b[:]) })
	p.at, p.keys, p.list = now, found, list
	return nil
}

// Probe implements exclusive.Published.
func (s *Service) Probe(ctx context.Context, hash sign.Hash) ([]byte, error) {
	s.public.mu.Lock()
	err := s.look(ctx, time.Now())
	key, ok := s.public.keys[hash]
	s.public.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, probes.ErrNoRecord
	}
	b, err := s.cfg.Store.Get(ctx, kindHeld, key)
	if errors.Is(err, store.ErrNotFound) {
		err = probes.ErrNoRecord
	}
	return b, err
}

// Probes implements exclusive.Published.
func (s *Service) Probes(ctx context.Context) ([]sign.Hash, error) {
	s.public.mu.Lock()
	defer s.public.mu.Unlock()
	err := s.look(ctx, time.Now())
	return s.public.list, err
}
