package cache

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/verify/challenge"
)

// counted counts how often a device is opened and closed, and may break.
type counted struct {
	device.Device
	closed *int
	broken bool
}

func (c *counted) Close() error { *c.closed++; return c.Device.Close() }

func (c *counted) Walk(ctx context.Context, key uint64, of device.Dataset, w challenge.Walk) ([]sign.Hash, error) {
	if c.broken {
		return nil, device.ErrClosed
	}
	return c.Device.Walk(ctx, key, of, w)
}

// A device stays open, and its dataset with it, from window to window; it is closed before a program begins, when its
// unit is not idle, and opened anew when it broke.
func TestKept(t *testing.T) {
	t.Parallel()
	ctx, k := t.Context(), New(slog.New(slog.DiscardHandler))
	unit, opened, closed := market.Unit{ID: market.UnitID{1}, Class: "gpu/h100"}, 0, 0
	var last *counted
	open := func() (device.Device, error) {
		opened++
		last = &counted{Device: cpu.New(cpu.Config{Memory: 1 << 20, Threads: 1}), closed: &closed}
		return last, nil
	}
	take := func() device.Device {
		t.Helper()
		k.Idle([]market.Unit{unit})
		d, err := k.Take(ctx, unit, open)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	want := func(what string, o, c int) {
		t.Helper()
		if opened != o || closed != c {
			t.Errorf("%s: opened %d times, closed %d, want %d and %d", what, opened, closed, o, c)
		}
	}
	of, walk := device.Dataset{Seed: sign.Hash{1}, Cells: 64, Work: 2}, challenge.Walk{Cells: 64, Work: 2, Walkers: 1, Steps: 4}
	d := take()
	if err := errors.Join(d.Fill(ctx, of), d.Close()); err != nil {
		t.Fatal(err)
	}
	d = take()
	if _, err := d.Walk(ctx, 7, of, walk); err != nil {
		t.Errorf("the dataset is not there in the next window: %v", err)
	}
	want("two windows", 1, 0)
	evict := func(ctx context.Context) error { return k.Evict(ctx, []market.UnitID{unit.ID, {9}}) }
	if err := errors.Join(d.Close(), evict(ctx)); err != nil {
		t.Fatal(err)
	}
	want("a program starts", 1, 1)
	if _, err := k.Take(ctx, unit, open); err == nil {
		t.Error("a unit that a program has is audited")
	}
	want("taken meanwhile", 2, 2)
	d = take()
	want("idle again", 3, 2)
	last.broken = true
	if _, err := d.Walk(ctx, 7, of, walk); !errors.Is(err, device.ErrClosed) {
		t.Error(err)
	}
	want("broken", 3, 3)
	take()
	want("opened anew", 4, 3)
	k.Idle(nil)
	want("not idle", 4, 4)
	take()
	k.Close()
	want("the end", 5, 5)
}

// A program that starts on a unit during its audit waits for the audit, so that no buyer can break it off. It waits no
// longer than its own life.
func TestAttackSaleDuringAudit(t *testing.T) {
	t.Parallel()
	k := New(slog.New(slog.DiscardHandler))
	unit, closed := market.Unit{ID: market.UnitID{1}, Class: "gpu/h100"}, 0
	k.Idle([]market.Unit{unit})
	open := func() (device.Device, error) {
		return &counted{Device: cpu.New(cpu.Config{Memory: 1 << 20, Threads: 1}), closed: &closed}, nil
	}
	var audits []device.Device
	for range 2 {
		d, err := k.Take(t.Context(), unit, open)
		if err != nil {
			t.Fatal(err)
		}
		audits = append(audits, d)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := k.Evict(gone, []market.UnitID{unit.ID}); !errors.Is(err, context.Canceled) || closed != 0 {
		t.Errorf("a program that ended: %v, closed %d times", err, closed)
	}
	done := make(chan error, 1)
	go func() { done <- k.Evict(t.Context(), []market.UnitID{unit.ID}) }()
	time.Sleep(10 * time.Millisecond) // for a program that does not wait
	for i, d := range audits {
		select {
		case err := <-done:
			t.Fatalf("the program started with %d audits under way: %v", len(audits)-i, err)
		default:
		}
		of := device.Dataset{Seed: sign.Hash{1}, Cells: 64, Work: 2}
		if err := errors.Join(d.Fill(t.Context(), of), d.Close()); err != nil {
			t.Errorf("audit %d: %v", i, err)
		}
	}
	if err := <-done; err != nil || closed != 1 {
		t.Errorf("after the audits: %v, closed %d times", err, closed)
	}
}
