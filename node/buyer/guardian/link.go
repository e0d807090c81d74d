package guardian

import (
	"slices"
	"sync"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
)

// command is the newest epoch that is known to be granted, with its proof.
type command struct {
	charter Charter
	domain  sign.Domain

	mu    sync.Mutex
	epoch uint64
	grant []byte // nil under the owner's first
}

func (c *command) get() (epoch uint64, grant []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch, c.grant
}

// learn checks and stores a proof of a higher epoch.
func (c *command) learn(epoch uint64, grant []byte) error {
	if err := c.charter.CheckGrant(c.domain, epoch, grant); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch > c.epoch {
		c.epoch, c.grant = epoch, grant
	}
	return nil
}

// sent is the newest state that was sent to the guardians.
type sent struct {
	mu    sync.Mutex
	state State
}

func (s *sent) set(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// files returns the files of the newest state, if that is its version.
func (s *sent) files(version uint64) ([]File, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Files, version != 0 && version == s.state.Version
}

// maxBeats bounds the beats under way to one guardian: those without news wait for answers to the others.
const maxBeats = 2

// link is the traffic between a panel and one guardian.
type link struct {
	mu     sync.Mutex
	beats  int                        // under way
	deaf   bool                       // the last beat did not reach it
	unsure map[market.LeaseID]*unsure // vouchers of which it has not confirmed receipt
	spare  []cid.Cid                  // the spare files that it has, as it said last
}

// unsure is the newest voucher of a lease that was sent to a guardian and is not signed yet.
type unsure struct {
	ask    *nodepb.GuardRequest_Voucher
	failed bool // the request failed
}

// begin counts a beat, and reports whether the number of pending beats is within the limit.
func (l *link) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beats++
	return l.beats <= maxBeats
}

// end ends a beat.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beats--
}

// reached notes whether the last beat reached the guardian.
func (l *link) reached(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = !yes
}

// keeps notes the spare files that the guardian has.
func (l *link) keeps(spare []cid.Cid) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = spare
}

// has reports whether the guardian said that it has a spare file.
func (l *link) has(c cid.Cid) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.spare, c)
}

// isDeaf reports whether the last beat did not reach the guardian.
func (l *link) isDeaf() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deaf
}

// asking records a request for a voucher to the guardian. It replaces earlier ones of the lease.
func (l *link) asking(id market.LeaseID, v *nodepb.GuardRequest_Voucher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsure[id] = &unsure{ask: v}
}

// heard records whether the guardian received a voucher.
func (l *link) heard(v *nodepb.GuardRequest_Voucher, yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, u := range l.unsure {
		switch {
		case u.ask != v:
		case yes:
			delete(l.unsure, id)
		default:
			u.failed = true
		}
	}
}

// missed returns the vouchers that the guardian did not receive, which are then under way again.
func (l *link) missed() (out []*nodepb.GuardRequest_Voucher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.unsure {
		if u.failed {
			out = append(out, u.ask)
			u.failed = false
		}
	}
	return out
}
