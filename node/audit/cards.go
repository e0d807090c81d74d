package audit

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
)

// kindBeside is nodepb.Beside by unit/other unit.
const kindBeside = "auditbeside"

// rivalsPoll is how often it is looked whether a unit of this peer waits for another that claims its card.
const rivalsPoll = 20 * time.Second

// note remembers which card a unit of this peer claims. s.mu is not held.
func (s *Service) note(u market.Unit) {
	if !s.alone(u.Class) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cards[u.ID] = u
}

// cardOf is a unit of this peer that claims a card; false for one of which there may be many.
func (s *Service) cardOf(id market.UnitID) (market.Unit, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.cards[id]
	return u, ok
}

// claimed are the tags of this peer's cards.
func (s *Service) claimed() []sign.Hash {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []sign.Hash
	for _, u := range s.cards {
		out = append(out, u.Card().Tag)
	}
	slices.SortFunc(out, func(a, b sign.Hash) int { return bytes.Compare(a[:], b[:]) })
	return out
}

// held is what the claim of a unit of this peer to its card is worth.
func (s *Service) held(u market.UnitID) audit.Held {
	card, ok := s.cardOf(u)
	if !ok || s.cfg.Claims == nil {
		return audit.Held{}
	}
	return s.cfg.Claims.Held(card.Card().Tag, u)
}

// Past is how all units did, by unit and then the newest first, and who else claims their cards.
func (s *Service) Past() []Past {
	all := s.cfg.Shelf.All()
	for i := range all {
		if i > 0 && all[i].Unit == all[i-1].Unit {
			continue
		}
		h := s.held(all[i].Unit)
		if all[i].Card = h.Note(); h.Err() != nil {
			all[i].Card = h.Err().Error()
		}
	}
	return all
}

// showCard gives the newest record of this peer's unit on a card.
func (s *Service) showCard(tag []byte) (*nodepb.RecordReply, error) {
	if len(tag) != sign.HashSize {
		return nil, malformed("tag of %d bytes", len(tag))
	}
	s.mu.Lock()
	var on market.Unit
	for _, u := range s.cards {
		if u.Card().Tag == sign.Hash(tag) {
			on = u
		}
	}
	s.mu.Unlock()
	r, _, ok := s.cfg.Shelf.newest(on.ID)
	if !ok {
		return nil, refuse(CodeUnknown, "no unit of this peer on that card has passed")
	}
	out := &nodepb.RecordReply{Record: r.Marshal()}
	s.opened(out, on.ID)
	return out, nil
}

// opened adds to a unit's newest record which card it claims, and who passed beside it.
func (s *Service) opened(out *nodepb.RecordReply, id market.UnitID) {
	if u, ok := s.cardOf(id); ok {
		out.Card, out.Has, out.Beside = u.Card().Marshal(), hasOf(u.Resources), s.cfg.Shelf.beside(id)
	}
}

// watchRivals looks who else claims the cards of this peer's units, when they were audited, until ctx ends.
func (s *Service) watchRivals(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.passed:
		}
		for s.rivals(ctx) && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-s.passed:
			case <-time.After(rivalsPoll):
			}
		}
	}
}

// rivals asks who else claims the cards of units that passed of late, and keeps what shows that others passed at once with them. It
// reports whether one of them waits for another.
func (s *Service) rivals(ctx context.Context) bool {
	window, _, err := s.cfg.Sight.Window()
	if err != nil {
		return false
	}
	s.mu.Lock()
	units := slices.Collect(maps.Values(s.cards))
	s.mu.Unlock()
	waits := false
	for _, u := range units {
		own, _, passed := s.cfg.Shelf.newest(u.ID)
		if !passed || own.Answer.Window+audit.Gone < window {
			continue
		}
		tag, was := u.Card().Tag, s.held(u.ID).Hold
		s.cfg.Claims.see(tag, own)
		for _, r := range s.cfg.Claims.Look(ctx, s.cfg.Key.Key(), tag, u.ID) {
			if err := s.cfg.Shelf.putBeside(ctx, own, r); err != nil && ctx.Err() == nil {
				s.cfg.Log.Error("that two units passed at once is not kept", "unit", u.ID, "err", err)
			}
		}
		is := s.held(u.ID)
		waits = waits || is.Hold == audit.Frozen
		if is.Hold == was {
			continue
		}
		if err := is.Err(); err != nil {
			s.cfg.Log.Warn("a unit is not offered as proven", "unit", u.ID, "err", err)
		} else if note := is.Note(); note != "" {
			s.cfg.Log.Warn("a unit's card is claimed by another unit too", "unit", u.ID, "what", note)
		}
		select {
		case s.poke <- struct{}{}: // it is to be offered otherwise
		default:
		}
	}
	return waits
}

func besideKey(u, other market.UnitID) string { return fmt.Sprintf("%s/%s", u, other) }

// shown is what shows that another unit passed at once with one of this peer's, and when.
type shown struct {
	other  market.UnitID
	window audit.Window
	pair   *nodepb.Beside
}

// loadBeside reads what an earlier process kept.
func (s *Shelf) loadBeside(ctx context.Context) error {
	return s.store.List(ctx, kindBeside, "", func(key string, b []byte) error {
		var p nodepb.Beside
		if err := proto.Unmarshal(b, &p); err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
		own, err := readCertificate(p.Own)
		if err != nil || !strings.HasPrefix(key, own.Answer.Unit.String()) {
			return fmt.Errorf("reading %s: %w: %v", key, market.ErrMalformed, err)
		}
		other, err := readCertificate(p.Other)
		if err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
		s.besides[own.Answer.Unit] = append(s.besides[own.Answer.Unit], shown{other.Answer.Unit, own.Answer.Window, &p})
		return nil
	})
}

// putBeside keeps that another unit passed at once with one of this peer's, if it did; of more than maxBeside units the latest.
func (s *Shelf) putBeside(ctx context.Context, own audit.Record, r rival) error {
	if own.Answer.Window != r.record.Answer.Window {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unit, other := own.Answer.Unit, r.record.Answer.Unit
	x := shown{other, own.Answer.Window, &nodepb.Beside{
		Own: own.Certificate().Marshal(), Other: r.record.Certificate().Marshal(), Card: r.card.Marshal(), Has: hasOf(r.res),
	}}
	var puts []store.Put
	var left []shown
	for _, o := range s.besides[unit] {
		switch {
		case o.other == other && o.window >= x.window:
			return nil
		case o.other == other: // written over
		case o.window+audit.Gone < x.window:
			puts = append(puts, store.Put{Kind: kindBeside, Key: besideKey(unit, o.other)})
		default:
			left = append(left, o)
		}
	}
	left = append(left, x)
	slices.SortStableFunc(left, func(a, b shown) int { return cmp.Compare(a.window, b.window) })
	for len(left) > maxBeside {
		puts = append(puts, store.Put{Kind: kindBeside, Key: besideKey(unit, left[0].other)})
		left = left[1:]
	}
	b, err := proto.Marshal(x.pair)
	if err != nil {
		return err
	}
	if err := s.store.Write(ctx, append(puts, store.Put{Kind: kindBeside, Key: besideKey(unit, other), Value: b})...); err != nil {
		return err
	}
	s.besides[unit] = left
	return nil
}

// beside is what shows who passed at once with a unit.
func (s *Shelf) beside(unit market.UnitID) (out []*nodepb.Beside) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.besides[unit] {
		out = append(out, x.pair)
	}
	return out
}
