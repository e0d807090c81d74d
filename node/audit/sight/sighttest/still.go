// Package sighttest has a network for the tests of audits.
package sighttest

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/sight"
	"github.com/starling-network/starling/verify/audit"
)

// Slots is the number of slots of a window.
const Slots = 100

// Still is a network that stands still in one window.
type Still struct {
	At     audit.Window
	Bonded audit.Roster
	Off    int64  // slots from the window's instant to now
	OneIn  uint64 // see audit.Instants
}

// Window returns the window, and the slot that it is now.
func (s *Still) Window() (audit.Window, market.Slot, error) {
	return s.At, market.Slot(int64(s.Instants().Of(s.At)) + s.Off), nil
}

// Instants returns the instants of audits.
func (s *Still) Instants() audit.Instants {
	return audit.Instants{Slots: Slots, Millis: 400, OneIn: s.OneIn}
}

// Recent returns every window as one with an audit.
func (s *Still) Recent() (audit.Recent, error) { return audit.Every(s.At), nil }

// Block returns the beacon of a window.
func (s *Still) Block(w audit.Window) audit.Beacon {
	first := w.First(Slots)
	return audit.Beacon{Slot: market.Slot(first), Value: sign.Sum(fmt.Appendf(nil, "block %d", first))}
}

// Beacon returns the beacons of a window and of its era.
func (s *Still) Beacon(_ context.Context, w audit.Window) (sight.Drawn, error) {
	return sight.Drawn{Beacon: s.Block(w), Era: s.Block(s.Instants().EraOf(w))}, nil
}

// Check returns the beacon of a window's era, if b is the window's.
func (s *Still) Check(ctx context.Context, w audit.Window, b audit.Beacon) (audit.Beacon, error) {
	own, _ := s.Beacon(ctx, w)
	if own.Beacon != b {
		return audit.Beacon{}, errors.New("another beacon")
	}
	return own.Era, nil
}

// Roster returns the roster, of every window.
func (s *Still) Roster(context.Context, audit.Window) (audit.Roster, error) { return s.Bonded, nil }
