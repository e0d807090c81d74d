package egress

import (
	"net/netip"
	"sync"
	"time"
)

// Bounds of the memory of names: the time that an address stays open after an answer with it, and the number of
// addresses. The time is longer than the answer's TTL, as programs keep addresses longer than that.
const (
	rememberFor  = 10 * time.Minute
	maxRemember  = 8192
	maxAddresses = 32 // of one answer
)

// memory is which rules opened an address, by names that led to it.
type memory struct {
	mu    sync.Mutex
	addrs map[netip.Addr]map[int]time.Time // rule → until
}

// remember opens addresses by rules. It is false if there is no room: then nothing was opened.
func (m *memory) remember(addrs []netip.Addr, rules []int, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.addrs == nil {
		m.addrs = map[netip.Addr]map[int]time.Time{}
	}
	if len(m.addrs)+len(addrs) > maxRemember {
		m.forget(now)
	}
	if len(m.addrs)+len(addrs) > maxRemember {
		return false
	}
	for _, a := range addrs {
		if m.addrs[a] == nil {
			m.addrs[a] = map[int]time.Time{}
		}
		for _, r := range rules {
			m.addrs[a][r] = now.Add(rememberFor)
		}
	}
	return true
}

// forget drops expired entries.
func (m *memory) forget(now time.Time) {
	for a, rules := range m.addrs {
		for r, until := range rules {
			if !now.Before(until) {
				delete(rules, r)
			}
		}
		if len(rules) == 0 {
			delete(m.addrs, a)
		}
	}
}

// rules returns the rules that open an address now.
func (m *memory) rules(a netip.Addr, now time.Time) (out []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, until := range m.addrs[a] {
		if now.Before(until) {
			out = append(out, r)
		}
	}
	return out
}
