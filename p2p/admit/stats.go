package admit

// Use is the use of some places by peers of one standing.
type Use struct {
	Standing Standing
	Used     int    // places, by the standing with which they were taken
	Ceiling  int    // Standing's share of all places
	Refused  uint64 // requests for a place since the start
}

// Uses returns the use by peers of each standing, the lowest first.
func (p *Places) Uses() (out []Use) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range ceilings {
		out = append(out, Use{Standing(s), p.by[s], Standing(s).Share(p.total), p.refused[s]})
	}
	return out
}

// Stats are the other peers' use of this one, and the number of strangers' connections ended for newcomers since the
// start.
type Stats struct {
	Handshakes, Conns, Streams []Use
	Evicted                    uint64
}

// Stats returns the current use.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	evicted := m.evicted
	m.mu.Unlock()
	return Stats{Handshakes: m.handshakes.Uses()[:1], Conns: m.conns.Uses(), Streams: m.streams.Uses(),
		Evicted: evicted}
}
