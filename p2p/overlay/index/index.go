// Package index finds the sender of a datagram: by the index from a device's half of a handshake, or by the tag of a
// probe.
package index

import (
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/starling-network/starling/p2p/overlay/wire"
)

const (
	// life is how long an index can be in use: WireGuard gives a key up after 180 s.
	life = device.RejectAfterTime + 20*time.Second
	// maxIndices bounds those of one member: it can make us answer 50 initiations a second.
	maxIndices = 256
)

// Index is the members of all overlays of a host. Its methods may be called by several goroutines at a time.
type Index[M any] struct {
	mu      sync.RWMutex
	byIndex map[uint32]*Entry[M]
	byTag   map[wire.Tag]*Entry[M]
}

// Entry is a member in an Index, which guards it.
type Entry[M any] struct {
	member M
	tag    wire.Tag
	gone   bool
	given  []given // the oldest first
}

type given struct {
	index uint32
	at    time.Time
}

// New returns an empty index.
func New[M any]() *Index[M] {
	return &Index[M]{byIndex: make(map[uint32]*Entry[M]), byTag: make(map[wire.Tag]*Entry[M])}
}

// NewEntry returns an entry for a member with the tag of its probes. The entry is in no index yet.
func NewEntry[M any](m M, tag wire.Tag) *Entry[M] { return &Entry[M]{member: m, tag: tag} }

// Add makes the probes of a member known.
func (x *Index[M]) Add(e *Entry[M]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byTag[e.tag] = e
}

// Learn records an index that a device gives to a member.
func (x *Index[M]) Learn(e *Entry[M], index uint32, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.gone {
		return
	}
	for len(e.given) > 0 && (now.Sub(e.given[0].at) > life || len(e.given) >= maxIndices) {
		if x.byIndex[e.given[0].index] == e {
			delete(x.byIndex, e.given[0].index)
		}
		e.given = e.given[1:]
	}
	e.given = append(e.given, given{index, now})
	x.byIndex[index] = e
}

// Remove deletes a member's indices and tag permanently.
func (x *Index[M]) Remove(e *Entry[M]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e.gone = true
	if x.byTag[e.tag] == e {
		delete(x.byTag, e.tag)
	}
	for _, g := range e.given {
		if x.byIndex[g.index] == e {
			delete(x.byIndex, g.index)
		}
	}
	e.given = nil
}

// Given returns the member that an index was given to, the zero M if there is none.
func (x *Index[M]) Given(index uint32) (m M) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e := x.byIndex[index]; e != nil {
		m = e.member
	}
	return m
}

// Tagged returns the member with the tag; the zero M if there is none.
func (x *Index[M]) Tagged(tag wire.Tag) (m M) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e := x.byTag[tag]; e != nil {
		m = e.member
	}
	return m
}
