package harness

import "time"

// mishap is the power cut that a peer may have in a test, and what becomes of it: it is away for a while, and starts again.
type mishap struct {
	peer   *Peer
	down   time.Duration // away
	kind   string        // of the write that it happened at; "": it has not happened
	writes []string      // of the peer's first process, once it has happened
	cut    <-chan struct{}
}

// mayCrash watches over a peer whose power may be cut.
func (p *Peer) mayCrash(down time.Duration) *mishap {
	return &mishap{peer: p, down: down, cut: p.Crashed()}
}

// wait waits so long, or for what the peer does when it happens.
func (m *mishap) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-m.cut:
		m.happen()
	}
}

// rest waits for what may still happen after a job's end: half a minute, or ten seconds once it has happened.
func (m *mishap) rest() {
	const beat = 500 * time.Millisecond
	for after, since := time.Duration(0), time.Duration(0); after < 30*time.Second && since < 10*time.Second; after += beat {
		if m.wait(beat); m.cut == nil {
			since += beat
		}
	}
}

// do does what asks a peer for something, again for as long as it is cut short.
func (m *mishap) do(ask func() error) error {
	for {
		done := make(chan error, 1)
		go func() { done <- ask() }()
		select {
		case err := <-done:
			if m.cut == nil || !m.peer.power.down() {
				return err
			}
		case <-m.cut:
		}
		m.happen()
	}
}

func (m *mishap) happen() {
	m.writes, m.cut = m.peer.Writes(), nil
	m.kind = m.writes[len(m.writes)-1]
	m.peer.Kill()
	time.Sleep(m.down)
	m.peer.Restart()
	time.Sleep(time.Second)
}

// happened reports whether it did. Writes are then all that the peer's first process made.
func (m *mishap) happened() (bool, []string) {
	if m.cut != nil {
		return false, m.peer.Writes()
	}
	return true, m.writes
}
