// Package peermap is a bounded map from peers to values: strangers add to it, and the number of keys is free.
package peermap

import (
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
)

// Max is the number of peers in a map. When one more is added, any other goes.
const Max = 512

// Map holds one value for each of at most [Max] peers. The zero Map is empty. Its methods may be called by several
// goroutines at a time.
type Map[V any] struct {
	mu sync.Mutex
	m  map[peer.ID]V
}

// Set sets the value of a peer.
func (m *Map[V]) Set(p peer.ID, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.m == nil {
		m.m = make(map[peer.ID]V)
	}
	if _, known := m.m[p]; !known {
		for id := range m.m { // any, in Go's random order
			if len(m.m) < Max {
				break
			}
			delete(m.m, id)
		}
	}
	m.m[p] = v
}

// Delete removes a peer.
func (m *Map[V]) Delete(p peer.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.m, p)
}

// Get returns the value of a peer and reports whether there is one.
func (m *Map[V]) Get(p peer.ID) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.m[p]
	return v, ok
}
