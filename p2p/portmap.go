package p2p

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	basichost "github.com/libp2p/go-libp2p/p2p/host/basic"
	ma "github.com/multiformats/go-multiaddr"
)

// When a router is looked for again that did not answer; the pause doubles up to the second. libp2p's own search takes
// ten seconds.
const (
	firstRouterSearch = time.Minute
	lastRouterSearch  = 16 * time.Minute
)

// portMaps is libp2p's port mapper, except that it does not give up: libp2p looks for a router once, when the host
// starts, and after a power cut a router takes longer than a peer.
type portMaps struct {
	wg sync.WaitGroup

	mu     sync.Mutex
	m      basichost.NATManager // nil until the host is made, or without port mapping
	closed chan struct{}
}

// manager is the port mapper for a host, which closes it.
func (p *portMaps) manager(n network.Network) basichost.NATManager {
	return p.start(func() basichost.NATManager { return basichost.NewNATManager(n) })
}

func (p *portMaps) start(search func() basichost.NATManager) *portMaps {
	closed := make(chan struct{})
	p.mu.Lock()
	p.m, p.closed = search(), closed
	p.mu.Unlock()
	p.wg.Go(func() {
		for pause := firstRouterSearch; ; pause = min(2*pause, lastRouterSearch) {
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
func (p *portMaps) GetMapping(listening ma.Multiaddr) ma.Multiaddr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m == nil {
		return nil
	}
	return p.m.GetMapping(listening)
}

// HasDiscoveredNAT reports whether a router was found.
func (p *portMaps) HasDiscoveredNAT() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m != nil && p.m.HasDiscoveredNAT()
}

// Close gives the ports back.
func (p *portMaps) Close() error {
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

// addrs are the addresses that the router forwards to those listened on.
func (p *portMaps) addrs(listening []ma.Multiaddr) map[string]bool {
	out := make(map[string]bool)
	for _, l := range listening {
		if a := p.GetMapping(l); a != nil {
			out[a.String()] = true
		}
	}
	return out
}
