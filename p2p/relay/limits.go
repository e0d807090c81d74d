package relay

import (
	"fmt"
	"time"

	circuit "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	"golang.org/x/time/rate"
)

// Limits bound one relay's work for others. A zero field takes the default beside it. Peers with a lease, and members
// of clusters, have another quarter of Circuits and of Reservations for themselves.
type Limits struct {
	// Data is the number of bytes that one circuit may carry, both directions together. 0 means DefaultData, a negative
	// value no limit.
	Data     int64
	Duration time.Duration // how long one circuit may live; DefaultDuration, negative: no limit
	Circuits int           // open circuits in all; DefaultCircuits
	// PerPeer bounds the open circuits from one peer, and to one peer. 0 means DefaultPerPeer.
	PerPeer      int
	Reservations int // peers that keep a place to be reached at; DefaultReservations
	PerIP        int // reservations from one address: a farm behind one router; DefaultPerIP
	// bytes a second that all circuits may carry, both directions together; DefaultRate, negative: no limit
	Rate int64
}

// The defaults are made for work, not only for meeting: libp2p's own (128 KiB and 2 minutes) carry no job.
const (
	DefaultData         = 4 << 30
	DefaultDuration     = 24 * time.Hour
	DefaultCircuits     = 256
	DefaultPerPeer      = 32
	DefaultReservations = 128
	DefaultPerIP        = 32
	DefaultRate         = 32 << 20

	// perASN is how many reservations may come from one IPv6 provider, as in libp2p: unless one address may have more.
	perASN = 32

	// maxCircuits bounds the memory of a relay, regardless of its configuration: two buffers and two streams each.
	maxCircuits = 4096
	// maxRate is more than any network card carries; the bytes carried at once have to be counted in an int.
	maxRate = 1 << 40
)

// A circuit with at least these limits is not announced as limited. libp2p does not run its own protocols (gossip, the
// DHT) over a limited connection, so a peer behind a NAT would not receive orders through its relay. With limits of
// gigabytes this is unnecessary. Smaller limits are announced to both ends.
const (
	GenerousData     = 256 << 20
	GenerousDuration = time.Hour
)

// LeastData is the least size of a circuit that lets larger files through. They continue over the next circuit where
// they were cut, but data under way is lost, and other streams take their part.
const LeastData = 1 << 20

func (l Limits) withDefaults() Limits {
	l.Data = or(l.Data, DefaultData)
	l.Duration = or(l.Duration, DefaultDuration)
	l.Circuits = or(l.Circuits, DefaultCircuits)
	l.PerPeer = or(l.PerPeer, DefaultPerPeer)
	l.Reservations = or(l.Reservations, DefaultReservations)
	l.PerIP = or(l.PerIP, DefaultPerIP)
	l.Rate = or(l.Rate, DefaultRate)
	return l
}

func or[T int | int64 | time.Duration](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

// Check refuses limits that cannot work.
func (l Limits) Check() error {
	l = l.withDefaults()
	switch {
	case l.Circuits < 0 || l.Circuits > maxCircuits:
		return fmt.Errorf("%w: %d circuits, at most %d", ErrConfig, l.Circuits, maxCircuits)
	case l.PerPeer < 0 || l.Reservations < 0 || l.PerIP < 0:
		return fmt.Errorf("%w: a negative number of circuits or reservations", ErrConfig)
	case l.Rate > maxRate:
		return fmt.Errorf("%w: %d bytes a second, at most %d", ErrConfig, l.Rate, int64(maxRate))
	case l.Duration > 0 && l.Duration < time.Second:
		return fmt.Errorf("%w: circuits of %v, at least 1s", ErrConfig, l.Duration)
	}
	return nil
}

// generous reports whether circuits are not announced as limited.
func (l Limits) generous() bool {
	return (l.Data < 0 || l.Data >= GenerousData) && (l.Duration < 0 || l.Duration >= GenerousDuration)
}

// resources are the limits for the part of the relay that keeps reservations.
func (l Limits) resources() circuit.Resources {
	rc := circuit.DefaultResources()
	rc.Limit = nil
	if !l.generous() {
		rc.Limit = &circuit.RelayLimit{Duration: l.told().duration, Data: l.told().data}
	}
	rc.MaxReservations, rc.MaxReservationsPerIP, rc.MaxReservationsPerASN = plus(l.Reservations), l.PerIP, max(perASN,
		l.PerIP)
	rc.MaxCircuits = l.PerPeer
	return rc
}

// plus adds the reserve for peers that have a lease with this one, or a place in one of its clusters: a quarter more
// than there is for others.
func plus(n int) int { return n + n/4 }

// sharePlaces is how many reservations the peers of one network may have.
func (l Limits) sharePlaces() int { return max(l.PerIP, l.Reservations/4) }

// shareCircuits is how many circuits the clients of one network may have open.
func (l Limits) shareCircuits() int { return max(l.PerPeer, l.Circuits/4) }

// pace is the limiter of all circuits. Waiting circuits are served in turn, a buffer at a time, so that each gets as
// much.
func (l Limits) pace() *rate.Limiter {
	if l.Rate < 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(l.Rate), int(max(l.Rate, buffer)))
}

type told struct {
	duration time.Duration
	data     int64
}

// told returns the limits that both ends of a limited circuit receive; zero means none.
func (l Limits) told() told {
	return told{duration: max(l.Duration, 0), data: max(l.Data, 0)}
}
