package hardware

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/exclusive"
)

// load is a program that computes on the card until it is stopped, and counts.
type load struct {
	stop chan struct{}
	done chan error
	mu   sync.Mutex
	n    int
}

func (l *load) run(ctx context.Context, d *cuda.Device, s challenge.Shape) {
	for {
		select {
		case <-l.stop:
			l.done <- nil
			return
		default:
		}
		if _, err := d.Multiply(ctx, sign.Hash{1}, s); err != nil {
			l.done <- err
			return
		}
		l.mu.Lock()
		l.n++
		l.mu.Unlock()
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// beside measures a program on the card before, during and after an audit, and the audit itself.
func (b *bench) beside(ctx context.Context) (_ string, err error) {
	w := b.over(b.sizes.steps[len(b.sizes.steps)-1] / 2)
	of := device.Of(seed(), w)
	if err := b.device.Fill(ctx, of); err != nil {
		return "", err
	}
	other, err := b.open(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	l := &load{stop: make(chan struct{}), done: make(chan error, 1)}
	go l.run(ctx, other, b.sizes.load)
	operations := float64(b.sizes.load.Operations())
	// rate is the load's rate over a time with at least one more completed computation.
	rate := func(meanwhile func() error) (float64, float64, error) {
		from := l.count()
		took, err := timed(func() error {
			if err := meanwhile(); err != nil {
				return err
			}
			for l.count() == from {
				select {
				case err := <-l.done:
					l.done <- err
					return errors.Join(errors.New("the load ended"), err)
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Millisecond):
				}
			}
			return nil
		})
		return float64(l.count()-from) * operations / took, took, err
	}
	alone := func() error {
		select {
		case <-time.After(b.sizes.loadTime):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r := &Beside{}
	if r.Before, _, err = rate(alone); err == nil {
		r.During, r.Audit, err = rate(func() error {
			var err error
			if r.Products, err = timed(func() error {
				_, err := b.device.Commit(ctx, seed(), b.sizes.shape)
				return err
			}); err != nil {
				return err
			}
			r.Walk, err = timed(func() error { _, err := walks(ctx, b.device, of, w); return err })
			return err
		})
	}
	if err == nil {
		r.After, _, err = rate(alone)
	}
	close(l.stop)
	if err = errors.Join(err, <-l.done); err != nil {
		return "", err
	}
	r.PerHour = max(1-r.During/r.Before, 0) * r.Audit / time.Hour.Seconds()
	b.report.Beside = r
	return fmt.Sprintf("%.3g operations/s before, %.3g during, %.3g after; products %.3f s, walk %.3f s beside it; "+
		"an audit per hour costs it %.4f %%",
		r.Before, r.During, r.After, r.Products, r.Walk, 100*r.PerHour), nil
}

// probes runs the probes of a lease, in the size for a card of this rate.
func (b *bench) probes(ctx context.Context) (string, error) {
	rate := uint64(0) // unknown
	if p := b.report.Products; p != nil {
		rate = uint64(p.Operations)
	}
	s, count := exclusive.Fit(exclusive.GPU, rate), 200
	if b.Small {
		s, count = b.sizes.load, 20
	}
	var all []float64
	for range count {
		took, err := timed(func() error { _, err := b.device.Multiply(ctx, seed(), s); return err })
		if err != nil {
			return "", err
		}
		all = append(all, took)
	}
	slices.Sort(all)
	p := &Probes{Shape: s.String(), Count: count, Median: median(all), P99: all[len(all)*99/100]}
	b.report.Probes = p
	return fmt.Sprintf("%d of %s: %.1f ms in the middle, 99 of 100 within %.1f ms",
		p.Count, p.Shape, 1000*p.Median, 1000*p.P99), nil
}
