package web

import (
	"context"
	"sync"
	"time"
)

const (
	// maxRunning bounds the downloads that run, maxPerBuyer those for one buyer.
	maxRunning  = 16
	maxPerBuyer = 4
	// A buyer with maxFailures within failWindow gets no download until it has passed.
	maxFailures = 16
	failWindow  = 10 * time.Minute
	// maxFailing bounds the number of buyers with remembered failures.
	maxFailing = 4096
)

// desk admits downloads.
type desk struct {
	mu      sync.Mutex
	running int
	of      map[string]int // running, by buyer
	failing map[string]failures
	freed   chan struct{} // closed when a download ends
}

// failures are those of a buyer since a time.
type failures struct {
	n     int
	since time.Time
}

// Admit waits for a free download slot. It returns the function that frees the slot with the download's error. It
// returns a *Failure if too many downloads of the buyer failed.
func (c *Client) Admit(ctx context.Context, buyer string) (done func(error), err error) {
	d := &c.desk
	for {
		d.mu.Lock()
		if f := d.failing[buyer]; f.n >= maxFailures && time.Since(f.since) < failWindow {
			d.mu.Unlock()
			return nil, &Failure{Class: ErrUnread,
				Advice: "too many downloads for this buyer have failed here; try again in 10 minutes"}
		}
		if d.running < maxRunning && d.of[buyer] < maxPerBuyer {
			if d.of == nil {
				d.of, d.failing = map[string]int{}, map[string]failures{}
			}
			d.running++
			d.of[buyer]++
			d.mu.Unlock()
			return func(err error) { d.leave(buyer, err != nil && ctx.Err() == nil) }, nil
		}
		if d.freed == nil {
			d.freed = make(chan struct{})
		}
		freed := d.freed
		d.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// leave ends a download of a buyer.
func (d *desk) leave(buyer string, failed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running--
	if d.of[buyer]--; d.of[buyer] == 0 {
		delete(d.of, buyer)
	}
	if d.freed != nil {
		close(d.freed)
		d.freed = nil
	}
	if !failed {
		return
	}
	f := d.failing[buyer]
	if time.Since(f.since) >= failWindow {
		f = failures{since: time.Now()}
	}
	f.n++
	d.failing[buyer] = f
	if len(d.failing) > maxFailing {
		d.forget(buyer)
	}
}

// forget drops expired failures; without any, those of the first buyer. but is the newest and is kept.
func (d *desk) forget(but string) {
	first := ""
	for b, f := range d.failing {
		switch {
		case b == but:
		case time.Since(f.since) >= failWindow:
			delete(d.failing, b)
		case first == "" || f.since.Before(d.failing[first].since):
			first = b
		}
	}
	if len(d.failing) > maxFailing {
		delete(d.failing, first)
	}
}
