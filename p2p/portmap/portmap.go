// Package portmap is libp2p's port mapper with retries. libp2p searches for a router once, when the host starts, but
// after a power cut a router starts later than a peer.
package portmap

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	basichost "github.com/libp2p/go-libp2p/p2p/host/basic"
	ma "github.com/multiformats/go-multiaddr"
)

// The pauses between searches for a router that did not answer: they double from the first to the last. libp2p's own
// search takes ten seconds.
const (
	firstPause = time.Minute
	lastPause  = 16 * time.Minute
)

// Mapper maps the ports of one host. The zero Mapper maps none.
type Mapper struct {
	wg sync.WaitGroup

	mu     sync.Mutex
	m      basichost.NATManager // nil until the host is made, or without port mapping
	closed chan struct{}
}

// Start starts the search for a router. The host of n closes the Mapper.
func (p *Mapper) Start(n network.Network) basichost.NATManager {
	return p.start(func() basichost.NATManager { return basichost.NewNATManager(n) })
}

func (p *Mapper) start(search func() basichost.NATManager) *Mapper {
	closed := make(chan struct{})
	p.mu.Lock()
	p.m, p.closed = search(), closed
	p.mu.Unlock()
	p.wg.Go(func() {
		for pause := firstPause; ; pause = min(2*pause, lastPause) {
			select {
			case <-closed:
				return
			case <-time.After(pause):
			}
			if p.HasDiscoveredNAT() { // from now on libp2p follows it by itself
				return
			}
			p.mu.Lock()
			_ = p.m.Close() // has nothing, so there is nothing to give back
			p.m = search()
			p.mu.Unlock()
		}
	})
	return p
}

// GetMapping is where the router forwards to a listening address from, or nil.
func (p *Mapper) GetMapping(listening ma.Multiaddr) ma.Multiaddr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m == nil {
		return nil
	}
	return p.m.GetMapping(listening)
}

// HasDiscoveredNAT reports whether a router was found.
func (p *Mapper) HasDiscoveredNAT() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m != nil && p.m.HasDiscoveredNAT()
}

// Close gives the ports back.
func (p *Mapper) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = nil
	p.mu.Unlock()
	if closed == nil {
		return nil
	}
	close(closed)
	p.wg.Wait()
	return p.m.Close()
}

// Addrs are the addresses that the router forwards to those listened on.
func (p *Mapper) Addrs(listening []ma.Multiaddr) map[string]bool {
	out := make(map[string]bool)
	for _, l := range listening {
		if a := p.GetMapping(l); a != nil {
			out[a.String()] = true
		}
	}
	return out
}
