package discovery

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"
)

const (
	// pushers is the number of topic keys that are pushed concurrently: enough for all within pushTimeout, even if
	// every walk takes its maximum time.
	pushers = 8
	// pushesEach is how many pushes of a record that changes fit into its validity.
	pushesEach = 20
	// pushTimeout bounds pushing a record and its topics once.
	pushTimeout = time.Minute
	// firstRetry is the pause after a push that reached no peer; it doubles up to maxRetry.
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
)

// pushed is the content of the last push that reached the DHT.
type pushed struct {
	at     time.Time
	topics []Topic
	addrs  []string // of this peer, as in provider records
}

// pusher keeps this peer's record, and its topics, in the DHT.
type pusher struct {
	d    *Discovery
	wake chan struct{} // a push is wished for; holds one token

	// pushing holds a token while a push runs, one at a time. It is not a mutex, since a push waits for the network,
	// and a synctest bubble's time stops while a goroutine waits for a mutex.
	pushing chan struct{}
	stored  map[cid.Cid]time.Time // when topics were last stored; guarded by pushing

	mu   sync.Mutex
	wish time.Time // when run is to push at the latest; zero: as it would anyway
	last pushed
}

func newPusher(d *Discovery) *pusher {
	return &pusher{
		d: d, wake: make(chan struct{}, 1), pushing: make(chan struct{}, 1), stored: make(map[cid.Cid]time.Time),
	}
}

// publish pushes a new record, now or soon after.
func (p *pusher) publish(ctx context.Context, r Record) error {
	if again := p.again(r); time.Until(again) > 0 {
		p.poke(again)
		return nil
	}
	err := p.push(ctx, false)
	if err != nil {
		p.poke(time.Now().Add(firstRetry))
	}
	return err
}

// again returns the time of the next push: now, unless a record with the same topics and addresses was pushed recently.
func (p *pusher) again(r Record) time.Time {
	addrs := p.addrs()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.last.topics, r.Topics) || !slices.Equal(p.last.addrs, addrs) {
		return time.Time{}
	}
	return p.last.at.Add(p.d.cfg.Validity / pushesEach)
}

// addrs returns the addresses of this peer, sorted.
func (p *pusher) addrs() []string {
	var out []string
	for _, a := range p.d.h.Addrs() {
		out = append(out, string(a.Bytes()))
	}
	slices.Sort(out)
	return out
}

// push puts the current record and its topics into the DHT. A stored topic contains only this peer's address. So unless
// all is set, push skips topics that were stored recently from the same addresses.
func (p *pusher) push(ctx context.Context, all bool) error {
	select {
	case p.pushing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.pushing }()
	r, data := p.d.own.renewed(time.Second)
	keys := p.d.topicKeysAt(r, time.Now())
	if data == nil && len(keys) == 0 {
		return nil
	}
	if p.d.dht.RoutingTable().Size() == 0 {
		return ErrNoPeers
	}
	now := pushed{at: time.Now(), topics: r.Topics, addrs: p.addrs()}
	p.mu.Lock()
	all = all || !slices.Equal(p.last.addrs, now.addrs)
	p.mu.Unlock()
	maps.DeleteFunc(p.stored, func(_ cid.Cid, at time.Time) bool { return all || now.at.Sub(at) > p.d.cfg.Validity/5 })
	keys = slices.DeleteFunc(keys, func(k cid.Cid) bool {
		_, lately := p.stored[k]
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
		if err := p.d.dht.PutValue(ctx, key(p.d.h.ID()), data); err != nil {
			return fmt.Errorf("storing record: %w", err)
		}
		return nil
	})
	for _, k := range keys {
		g.Go(func() error {
			if err := p.d.provide(ctx, k); err != nil {
				return fmt.Errorf("storing topic: %w", err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, k := range keys {
		p.stored[k] = now.at
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = now
	return nil
}

// run pushes until ctx ends.
func (p *pusher) run(ctx context.Context) {
	// Soon after the start the routing table is small and the first copies lie in the wrong places.
	early := []time.Duration{p.d.cfg.Validity / 40, p.d.cfg.Validity / 10}
	retry := firstRetry
	due := time.Now() // when everything is stored again
	at := due         // when something is
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			if wish := p.wished(); !wish.IsZero() && wish.Before(at) {
				at = wish
				timer.Reset(time.Until(at))
			}
			continue
		case <-timer.C:
		}
		p.wished() // this is the push that was wished for
		all := !time.Now().Before(due)
		err := p.push(ctx, all)
		switch {
		case err != nil:
			p.d.log.Debug("record not pushed", "err", err)
			due = time.Now().Add(retry)
			retry = min(2*retry, maxRetry)
		case !all:
		case len(early) > 0:
			due = time.Now().Add(early[0])
			early = early[1:]
		default:
			due = time.Now().Add(p.d.cfg.Validity * 2 / 5)
			retry = firstRetry
		}
		at = due
		timer.Reset(time.Until(at))
	}
}

// poke sets the latest time of the next push.
func (p *pusher) poke(at time.Time) {
	p.mu.Lock()
	if p.wish.IsZero() || at.Before(p.wish) {
		p.wish = at
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// wished is when run is to push at the latest, and forgets it; zero: as it would anyway.
func (p *pusher) wished() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.wish
	p.wish = time.Time{}
	return at
}
