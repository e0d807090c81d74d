package discovery

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"
)

const (
	// pushers is how many topic keys are pushed at a time: all of them in pushTimeout, though every walk takes as long
	// as it may.
	pushers = 8
	// pushesEach is how many pushes of a record that changes fit into its validity.
	pushesEach = 20
	// pushTimeout bounds pushing a record and its topics once.
	pushTimeout = time.Minute
	// firstRetry is the pause after a push that reached nobody; it doubles up to maxRetry.
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
)

// pushed is the content of the last push that reached the DHT.
type pushed struct {
	at     time.Time
	topics []Topic
	addrs  []string // of this peer, as in provider records
}

// again is when a record is to be pushed: at once unless one of the same topics at the same addresses was, a moment
// ago.
func (d *Discovery) again(r Record) time.Time {
	addrs := d.addrs()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.last.topics, r.Topics) || !slices.Equal(d.last.addrs, addrs) {
		return time.Time{}
	}
	return d.last.at.Add(d.cfg.Validity / pushesEach)
}

// addrs are the addresses of this peer, in an order that says nothing.
func (d *Discovery) addrs() []string {
	var out []string
	for _, a := range d.h.Addrs() {
		out = append(out, string(a.Bytes()))
	}
	slices.Sort(out)
	return out
}

// push puts the current record and its topics into the DHT. A stored topic says no more than this peer's address. So
// unless all is set, it leaves out topics that were stored lately from the same addresses.
func (d *Discovery) push(ctx context.Context, all bool) error {
	select {
	case d.pushing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.pushing }()
	r, data := d.renewed(time.Second)
	keys := d.topicKeysAt(r, time.Now())
	if data == nil && len(keys) == 0 {
		return nil
	}
	if d.dht.RoutingTable().Size() == 0 {
		return ErrNoPeers
	}
	now := pushed{at: time.Now(), topics: r.Topics, addrs: d.addrs()}
	d.mu.Lock()
	all = all || !slices.Equal(d.last.addrs, now.addrs)
	d.mu.Unlock()
	maps.DeleteFunc(d.stored, func(_ cid.Cid, at time.Time) bool { return all || now.at.Sub(at) > d.cfg.Validity/5 })
	keys = slices.DeleteFunc(keys, func(k cid.Cid) bool {
		_, lately := d.stored[k]
		return lately
	})
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(pushers)
	g.Go(func() error {
		if data == nil {
			return nil
		}
		if err := d.dht.PutValue(ctx, key(d.h.ID()), data); err != nil {
			return fmt.Errorf("storing record: %w", err)
		}
		return nil
	})
	for _, k := range keys {
		g.Go(func() error {
			if err := d.provide(ctx, k); err != nil {
				return fmt.Errorf("storing topic: %w", err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, k := range keys {
		d.stored[k] = now.at
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = now
	return nil
}

// Run keeps the record in the DHT until ctx ends, then returns nil.
func (d *Discovery) Run(ctx context.Context) error {
	// Soon after the start the routing table is small and the first copies lie in the wrong places.
	early := []time.Duration{d.cfg.Validity / 40, d.cfg.Validity / 10}
	retry := firstRetry
	due := time.Now() // when everything is stored again
	at := due         // when something is
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
			if wish := d.wished(); !wish.IsZero() && wish.Before(at) {
				at = wish
				timer.Reset(time.Until(at))
			}
			continue
		case <-timer.C:
		}
		d.wished() // this is the push that was wished for
		all := !time.Now().Before(due)
		err := d.push(ctx, all)
		switch {
		case err != nil:
			d.log.Debug("record not pushed", "err", err)
			due = time.Now().Add(retry)
			retry = min(2*retry, maxRetry)
		case !all:
		case len(early) > 0:
			due = time.Now().Add(early[0])
			early = early[1:]
		default:
			due = time.Now().Add(d.cfg.Validity * 2 / 5)
			retry = firstRetry
		}
		at = due
		timer.Reset(time.Until(at))
	}
}

// poke sets the latest time of Run's next push.
func (d *Discovery) poke(at time.Time) {
	d.mu.Lock()
	if d.wish.IsZero() || at.Before(d.wish) {
		d.wish = at
	}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// wished is when Run is to push at the latest, and forgets it; zero: as it would anyway.
func (d *Discovery) wished() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.wish
	d.wish = time.Time{}
	return at
}
