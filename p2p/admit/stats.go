package admit

// Use is what peers of one standing have of some places.
type Use struct {
	Standing Standing
	Used     int    // places, by the standing with which they were taken
	Ceiling  int    // Standing's share of all places
	Refused  uint64 // requests for a place since the start
}

// Uses returns what peers of each standing have, the lowest first.
func (p *Places) Uses() (out []Use) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range ceilings {
		out = append(out, Use{Standing(s), p.by[s], Standing(s).Share(p.total), p.refused[s]})
	}
	return out
}

// Stats are what others have of this peer, and how many strangers' connections were ended for newcomers since the
// start.
type Stats struct {
	Handshakes, Conns, Streams []Use
	Evicted                    uint64
}

// Stats returns what there is now.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	evicted := m.evicted
	m.mu.Unlock()
	return Stats{Handshakes: m.handshakes.Uses()[:1], Conns: m.conns.Uses(), Streams: m.streams.Uses(), Evicted: evicted}
}
