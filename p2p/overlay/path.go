package overlay

import (
	"time"

	"github.com/starling-network/starling/p2p/overlay/wire"
)

const (
	// silence is the time without packets from an active member after which its path is probed.
	silence = 500 * time.Millisecond
	// maxMissed pings in a row give a path up, when the first of them was sent givenUp and two round trips ago. With
	// the silence before, a dead path is left after two to three seconds of traffic.
	maxMissed = 5
	givenUp   = 1250 * time.Millisecond
	// compareFirst is how long after a path was found it is compared with others, compareEvery the pause from then on,
	// roundTime how long the answers of one round may take.
	compareFirst = 5 * time.Second
	compareEvery = time.Minute
	roundTime    = time.Second
	// winsToMove rounds in a row another path must be clearly better.
	winsToMove = 8
)

// round compares the path in use with others: all are pinged at the same moment, so that a delay for one delays all.
type round struct {
	id      uint64 // counts up; 0: none is on
	ends    time.Time
	used    time.Duration // round trip of the path in use, 0: not answered yet
	best    route         // of the others
	bestRTT time.Duration
}

// better reports whether a path is worth moving to: by a fifth, and by more than chance makes.
func better(rtt, than time.Duration) bool { return rtt+rtt/4+200*time.Microsecond < than }

// keep pings on the direct path, tries sizes on it, and compares it with others. The caller holds the lock.
func (m *member) keep(r route, now time.Time, busy bool) {
	p := &m.probing
	pause := probeIdle
	if busy {
		pause = probeBusy
		if heard := max(p.heard.Load(), p.ponged.UnixNano()); p.used.Load() > heard &&
			now.UnixNano()-heard > int64(silence+2*p.rtt) {
			pause = probeAgain
		}
	}
	if p.doubt.Swap(false) {
		pause = probeAgain
	}
	if p.missed > 0 {
		pause = probeTick
	}
	if now.Sub(p.last) >= pause {
		if p.missed >= maxMissed && now.Sub(p.missing) >= givenUp+2*p.rtt {
			m.lose(r, now)
			return
		}
		if p.missed == maxMissed-2 && m.mtu.Load() > wire.MinMTU {
			// Perhaps only large packets are lost.
			m.mtu.Store(wire.MinMTU)
			p.rounds, p.resize, p.verified = 0, now.Add(probeAgain), false
		}
		if p.missed == 0 {
			p.missing = now
		}
		p.last = now
		p.missed++
		m.ping(r, int(m.mtu.Load()), now)
	}
	m.size(r, now)
	m.compare(r, now)
}

// lose gives the direct path up. The caller holds the lock.
func (m *member) lose(r route, now time.Time) {
	p := &m.probing
	m.direct.Store(nil)
	m.d.locate()
	m.d.n.stats.paths.down.Add(1)
	m.d.log.Debug("direct path lost", "member", m.Address, "addr", r.to)
	p.tries, p.search, p.streamPing = 0, time.Time{}, time.Time{}
	p.round, p.wins = round{}, 0
	m.seek(now, true)
}

// size tries sizes on the direct path. The caller holds the lock.
func (m *member) size(r route, now time.Time) {
	p := &m.probing
	if now.Before(p.resize) {
		return
	}
	if p.rounds == mtuRounds {
		p.rounds = 0
		p.resize = now.Add(mtuEvery)
		if !p.verified && m.mtu.Load() == wire.DefaultMTU {
			m.mtu.Store(wire.MinMTU)
		}
		return
	}
	p.rounds++
	p.resize = now.Add(probeAgain + 2*p.rtt)
	for _, size := range mtuLadder {
		if size > int(m.mtu.Load()) || size == wire.DefaultMTU && !p.verified {
			m.ping(r, size, now)
		}
	}
}

// compare looks now and then whether another path is faster. The caller holds the lock.
func (m *member) compare(r route, now time.Time) {
	p := &m.probing
	if p.round.ends.After(now) || p.round.id == 0 && now.Before(p.compare) {
		return
	}
	if p.round.id != 0 { // one is over
		c := p.round
		p.round = round{}
		p.compare = now.Add(compareEvery)
		switch {
		case c.best.port == nil || c.used == 0 || !better(c.bestRTT, c.used):
			p.wins = 0
			return
		case c.best != p.rival:
			p.rival, p.wins = c.best, 0
		}
		if p.wins++; p.wins < winsToMove {
			p.compare = now.Add(roundTime)
			return
		}
		m.d.log.Debug("moved to a faster path", "member", m.Address, "addr", c.best.to, "rtt", c.bestRTT, "was", r.to,
			"rtt-was", c.used)
		m.d.n.stats.paths.moved.Add(1)
		m.use(c.best, c.bestRTT, now)
		return
	}
	p.turns++
	p.round = round{id: p.turns, ends: now.Add(roundTime + 2*p.rtt)}
	if p.wins == 0 {
		m.call(r) // where else is it?
	}
	m.ping(r, 0, now)
	others := []route{p.rival}
	if p.wins == 0 {
		others = m.allowed(now)
	}
	for _, other := range others {
		if other != r {
			m.ping(other, 0, now)
		}
	}
}

// use makes a path the member's. The caller holds the lock.
func (m *member) use(r route, rtt time.Duration, now time.Time) {
	p := &m.probing
	p.rtt, p.missed, p.last, p.ponged = rtt, 0, now, now
	p.rounds, p.resize, p.verified = 0, now, false
	p.round, p.wins, p.compare, p.burst = round{}, 0, now.Add(compareFirst), 0
	m.mtu.Store(wire.DefaultMTU)
	m.direct.Store(&r)
	m.d.locate()
}

// pong is news of a UDP path. The caller holds the lock.
func (m *member) pong(sent ping, rtt time.Duration, now time.Time) {
	p := &m.probing
	r := m.direct.Load()
	switch {
	case r == nil:
		m.use(sent.route, rtt, now)
		m.d.n.stats.paths.up.Add(1)
		m.d.log.Debug("direct path found", "member", m.Address, "addr", sent.route.to, "rtt", rtt)
		m.out.divert(sent.route)
		m.keep(sent.route, now, true)
		return
	case *r == sent.route:
		p.missed, p.ponged = 0, now
		if p.rtt = (7*p.rtt + rtt) / 8; p.rtt > rtt {
			p.rtt = rtt // queues empty quickly
		}
		if sent.mtu >= wire.DefaultMTU {
			p.verified = true
		}
		if sent.mtu > int(m.mtu.Load()) {
			m.mtu.Store(int32(sent.mtu))
		}
	}
	if sent.round == 0 || sent.round != p.round.id {
		return
	}
	if *r == sent.route {
		p.round.used = rtt
	} else if p.round.best.port == nil || rtt < p.round.bestRTT {
		p.round.best, p.round.bestRTT = sent.route, rtt
	}
}
