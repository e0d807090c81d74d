// Package entries is a light client's connection to the network: two entry peers, of many remembered ones, and the
// market, audits and chain on which these two agree (node/entry/PROTOCOL.md).
package entries

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/node/wholefile"
	"github.com/starling-network/starling/p2p"
)

// Rhythm of the loop that keeps the client connected.
const (
	// wantEntries is the number of connected entries: one in use, and a standby that is compared with it.
	wantEntries = 2
	// maxConnected is the number of connected entries while these are not independent, so that another one is tried.
	maxConnected = 3
	// tryTime is how long an entry that is tried keeps others from being tried in its place.
	tryTime = 2 * time.Second
	// pingEvery and patience decide how soon a dead entry is noticed. Payments for running work go through it, and a
	// provider waits for one no longer than an interval and two seconds.
	pingEvery = 300 * time.Millisecond
	patience  = time.Second
	// firstRetry is the pause before an entry that failed is tried again; it doubles up to maxRetry.
	firstRetry = 500 * time.Millisecond
	maxRetry   = 15 * time.Second
	// lookEvery is the interval of checks of the list of entries without other events.
	lookEvery = time.Second
	// findTime, slotTime and publishTime bound a request to one entry beside the other: a silent one must not delay the
	// other's answer for long.
	findTime    = 700 * time.Millisecond
	slotTime    = 3 * time.Second
	publishTime = 5 * time.Second
)

// Keeper keeps a client connected to two entries of its network and remembers others.
type Keeper struct {
	// Moved is called when an entry was gained or lost. It is set before Run.
	Moved func(context.Context)

	host *p2p.Light
	tag  string
	pin  Pin
	home string // "": nothing is remembered
	log  *slog.Logger
	wg   sync.WaitGroup // of work that continues after its caller's context ended

	warned string // last warning to the user about the entries; Run's own

	mu    sync.Mutex
	all   map[peer.ID]*candidate
	poked chan struct{}
}

// New returns the keeper of a client with this host. It starts with the remembered entries of home and the given ones.
// If home is empty, nothing is remembered.
func New(host *p2p.Light, g market.Genesis, home string, given []peer.AddrInfo, log *slog.Logger) *Keeper {
	k := &Keeper{host: host, tag: g.Tag(), pin: Pin{Genesis: &g}, home: home, log: log, all: map[peer.ID]*candidate{},
		poked: make(chan struct{}, 1)}
	if home != "" {
		for _, e := range readEntries(home) {
			if info, ok := e.info(); ok {
				k.all[info.ID] = &candidate{known: e, peer: info}
			}
		}
	}
	k.give(given)
	return k
}

// Run keeps the client connected until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer k.wg.Wait()
	defer wg.Wait()
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		if k.home != "" {
			k.give(config.ReadPeers(k.home))
		}
		for _, c := range k.next(time.Now()) {
			wg.Go(func() { k.use(ctx, c) })
		}
		k.warn()
		select {
		case <-ctx.Done():
			return nil
		case <-k.poked:
		case <-t.C:
		}
	}
}

// poke makes Run check the list at once.
func (k *Keeper) poke() {
	select {
	case k.poked <- struct{}{}:
	default:
	}
}

// use connects to an entry and returns when it no longer answers.
func (k *Keeper) use(ctx context.Context, c *candidate) {
	err := k.enter(ctx, c)
	if err == nil {
		k.log.Info("connected to an entry peer", "entry", c.peer.ID)
		k.poke()
		k.wg.Go(func() { k.Moved(ctx) })
		err = k.host.Keep(ctx, c.peer.ID, pingEvery, patience)
		k.host.Leave(c.peer.ID)
		if ctx.Err() == nil {
			k.log.Warn("an entry peer is lost; continuing through another", "entry", c.peer.ID, "err", err)
			k.wg.Go(func() { k.Moved(ctx) })
		}
	}
	k.mu.Lock()
	c.busy, c.in = false, false
	if err != nil {
		c.reason = err.Error()
	}
	c.retry = min(max(2*c.retry, firstRetry), maxRetry)
	c.after = time.Now().Add(c.retry)
	k.mu.Unlock()
	k.poke()
}

// enter connects to an entry and makes sure that it is one of this network.
func (k *Keeper) enter(ctx context.Context, c *candidate) error {
	ctx, cancel := context.WithTimeout(ctx, maxRetry)
	defer cancel()
	k.mu.Lock()
	to := c.peer
	k.mu.Unlock()
	if err := k.host.Enter(ctx, to); err != nil {
		k.log.Debug("an entry peer cannot be used", "entry", to.ID, "err", err)
		return err
	}
	said, err := entry.Ask(ctx, k.host, to.ID)
	if err == nil {
		err = k.pin.Check(said.Genesis)
	}
	if err == nil && !k.wanted(to.ID) {
		err = fmt.Errorf("there are %d others already", wantEntries)
	} else if err != nil {
		k.log.Warn("an entry peer cannot be used", "entry", to.ID, "err", err)
	}
	if err != nil {
		k.host.Leave(to.ID)
		return err
	}
	k.learn(to.ID, said.Others) // before it is in use: with other known entries the client is not alone
	k.mu.Lock()
	c.peers = said.Peers
	c.in, c.Shown, c.Seen, c.retry, c.reason = true, true, time.Now().Unix(), 0, ""
	k.mu.Unlock()
	if most := k.host.CircuitData(to.ID); most > 0 {
		k.log.Warn("an entry peer ends circuits early: larger files are brought in parts, and exec, cp and "+
			"port-forward break off; use one with a larger relay.dataMiB",
			"entry", to.ID, "bytes", most)
	}
	k.remember()
	return nil
}

// wanted reports whether to connect one more entry: if there are fewer than two, or if only this one is independent of
// the entry in use.
func (k *Keeper) wanted(id peer.ID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	live := k.entriesLocked()
	return len(live) < wantEntries || len(live) < maxConnected && !k.apartLocked(live) &&
		k.apart(k.all[live[0]], k.all[id])
}

// Entries returns the connected entries with this network's genesis, the one in use first.
func (k *Keeper) Entries() []peer.ID {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.entriesLocked()
}

func (k *Keeper) entriesLocked() []peer.ID {
	return slices.DeleteFunc(k.host.Entries(), func(id peer.ID) bool { c := k.all[id]; return c == nil || !c.in })
}

// Peers returns the known entries that are not in use. A client selects guardians among them, because its work must not
// depend on its own connection to the network.
func (k *Keeper) Peers() []peer.AddrInfo {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]peer.AddrInfo, 0, len(k.all))
	for _, c := range k.all {
		if !c.in {
			out = append(out, c.peer)
		}
	}
	return out
}

// remember writes the list down.
func (k *Keeper) remember() {
	if k.home == "" {
		return
	}
	k.mu.Lock()
	var all []known
	for _, c := range k.all {
		all = append(all, c.known)
	}
	err := wholefile.Write(filepath.Join(k.home, FileEntries), encodeEntries(all), 0o600)
	k.mu.Unlock()
	if err != nil {
		k.log.Warn("entry peers not remembered", "err", err)
	}
}

// Size returns an estimate of the number of peers in the network. It is the least answer of the entries in use, as then
// more providers receive an order. It is 0 if no entry has an estimate.
func (k *Keeper) Size() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	least := 0
	for _, id := range k.entriesLocked() {
		if n := k.all[id].peers; n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}
