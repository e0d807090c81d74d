package cluster

import (
	"fmt"
	"time"
)

// bounds are those of the classes that have any: the round trip is below, the rate at least.
var bounds = map[Class]struct {
	rtt  time.Duration
	mbit uint64
}{
	LAN:   {time.Millisecond, 10_000},
	Metro: {15 * time.Millisecond, 1_000},
}

// ProbeShare is the least part of a wire that a probe of it carries, a twentieth. A probe is a stream of bytes for a
// fraction of a second, between busy processors, and its congestion control has just begun. Its result is never too
// high.
const ProbeShare = 20

// RTT returns the upper bound of round trips in a network of the class; 0 means none.
func (c Class) RTT() time.Duration { return bounds[c].rtt }

// Mbit returns the minimum rate between any two members in Mbit/s; 0 means none.
func (c Class) Mbit() uint64 { return bounds[c].mbit }

// ClassOf is the class of a path by its measurements: the round trip, and the rate of a probe. A rate of 0 was not
// measured and is in no class; [ClassByRTT] ignores rates.
func ClassOf(rtt time.Duration, mbit uint64) Class {
	for _, c := range classes {
		if b, bounded := bounds[c]; !bounded || rtt < b.rtt && mbit >= b.mbit/ProbeShare {
			return c
		}
	}
	return WAN
}

// ClassByRTT is the class that a round trip leaves possible.
func ClassByRTT(rtt time.Duration) Class { return ClassOf(rtt, ^uint64(0)) }

// Falls returns the reason why a path is not of the class, or "".
func (c Class) Falls(rtt time.Duration, mbit uint64) string {
	b, bounded := bounds[c]
	switch {
	case !bounded:
		return ""
	case rtt >= b.rtt:
		return fmt.Sprintf("%v apart, a %s is under %v", rtt.Round(10*time.Microsecond), c, b.rtt)
	case mbit < b.mbit/ProbeShare:
		return fmt.Sprintf("a probe between them carried %d Mbit/s, that of a %s at least %d",
			mbit, c, b.mbit/ProbeShare)
	}
	return ""
}
