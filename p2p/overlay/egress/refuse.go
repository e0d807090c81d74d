package egress

import (
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Reason is the reason for the refusal of a container's packet or query.
type Reason int

// Reasons.
const (
	ReasonMode        Reason = iota // the mode is none, and it is not the service address
	ReasonClosed                    // a closed range: the provider's network, metadata, multicast and so on
	ReasonHost                      // one of the host's own addresses
	ReasonMail                      // a TCP port of mail servers
	ReasonList                      // not in the allow list
	ReasonService                   // a port of the service address without a service
	ReasonFlows                     // too many flows at a time
	ReasonRate                      // too many new flows a second
	ReasonShare                     // the budget of all containers is used up, and this one has its share of it or more
	ReasonUnreachable               // allowed, but it could not be dialled
	ReasonProtocol                  // neither TCP nor UDP, or not IPv4
	ReasonSource                    // not sent from the container's address
	ReasonMalformed                 // no packet, or no DNS message
	ReasonName                      // a name that the policy does not allow
	ReasonAnswer                    // a name that leads to a closed address only
	ReasonQueries                   // too many names looked up a second
	reasons
)

var reasonTexts = [reasons]string{
	"mode none", "closed address", "host's own address", "mail", "not on the allow list", "no such service",
	"too many flows", "too many new flows", "share used up", "unreachable", "protocol",
	"not from the container's address", "malformed", "name not allowed", "name leads to a closed address",
	"too many queries",
}

// String is a few words.
func (r Reason) String() string {
	if r < 0 || r >= reasons {
		return "unknown"
	}
	return reasonTexts[r]
}

const (
	logEvery   = 10 * time.Second
	maxTargets = 1024
)

// refusals counts by reason and logs refused packets, seldom: one line for each reason in 10 s, with their number and
// the number of different targets since the last.
type refusals struct {
	log    *slog.Logger
	counts [reasons]atomic.Uint64
	mu     sync.Mutex
	open   [reasons]window
}

// window is the refusals since the last line.
type window struct {
	told    time.Time
	count   uint64
	targets map[netip.AddrPort]struct{} // at most maxTargets
	last    string
}

// add counts one and reports whether a line was written. target is its destination, name the looked up name.
func (r *refusals) add(why Reason, target netip.AddrPort, name string) {
	r.counts[why].Add(1)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &r.open[why]
	w.count++
	switch {
	case target.IsValid():
		if w.targets == nil {
			w.targets = map[netip.AddrPort]struct{}{}
		}
		if len(w.targets) < maxTargets {
			w.targets[target] = struct{}{}
		}
		w.last = target.String()
	case name != "":
		w.last = name
	}
	if now.Sub(w.told) >= logEvery {
		r.tell(why, now)
	}
}

// tell logs the refusals of a window and begins the next window. r.mu is held.
func (r *refusals) tell(why Reason, now time.Time) {
	w := &r.open[why]
	r.log.Warn("egress refused", "reason", why.String(), "times", w.count, "targets", len(w.targets), "last", w.last)
	*w = window{told: now}
}

// flush logs the refusals that no line has yet.
func (r *refusals) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for why := range reasons {
		if r.open[why].count > 0 {
			r.tell(why, time.Now())
		}
	}
}

// sum returns the count by reason, without zeros.
func (r *refusals) sum() map[Reason]uint64 {
	out := map[Reason]uint64{}
	for why := range reasons {
		if n := r.counts[why].Load(); n > 0 {
			out[why] = n
		}
	}
	return out
}
