package coords

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/serf/coordinate"

	"github.com/starling-network/starling/market"
)

const (
	// An observation may move a peer by leastStep, or by partOfRTT of the measured round trip if that is more: as far
	// as an honest peer far from its coordinate would.
	leastStep = 0.002 // seconds
	partOfRTT = 0.25
	// doubtStep is how much of its confidence one observation may cost a peer.
	doubtStep = 0.05
	// maxRTT is the longest round trip that is used for an estimate.
	maxRTT = 3 * time.Second
	// again is how soon the same peer counts again.
	again = time.Second
	// maxPeers bounds the peers with remembered round trips.
	maxPeers = 512
	// least is the number of observations before a coordinate is published.
	least = 3
	// doubted is how sure a peer can be of a coordinate that it had when it last ran.
	doubted = 0.3
)

// ErrObservation means that an observation was left out.
var ErrObservation = errors.New("observation not used")

// Space is where one peer is. It may be used by many goroutines.
type Space struct {
	mu     sync.Mutex
	client *coordinate.Client
	config *coordinate.Config
	heard  map[string]time.Time
	seen   int
}

// NewSpace begins where the peer was when it last ran; the zero coordinate: nowhere.
func NewSpace(was market.Coordinate) (*Space, error) {
	c := coordinate.DefaultConfig()
	c.Dimensionality = market.CoordinateDims
	// An offset by the mean of the last few: one liar among them would have all of its lie in it.
	c.AdjustmentWindowSize = 0
	client, err := coordinate.NewClient(c)
	if err != nil {
		return nil, fmt.Errorf("network coordinates: %w", err)
	}
	s := &Space{client: client, config: c, heard: map[string]time.Time{}}
	if !was.IsZero() && was.Check() == nil {
		at := s.float(was)
		at.Error = max(at.Error, doubted)
		if err := client.SetCoordinate(at); err != nil {
			return nil, fmt.Errorf("network coordinates: %w", err)
		}
		s.seen = least
	}
	return s, nil
}

func (s *Space) float(c market.Coordinate) *coordinate.Coordinate {
	out := coordinate.NewCoordinate(s.config)
	for i, v := range c.Vec {
		out.Vec[i] = float64(v) / 1e6
	}
	out.Height, out.Error = max(float64(c.Height)/1e6, s.config.HeightMin), float64(c.Error)/1e6
	return out
}

// Observe moves the estimate by a peer's own coordinate and the round trip that was measured to it. It returns
// ErrObservation, and changes nothing, if the observation is unusable.
func (s *Space) Observe(from string, at market.Coordinate, rtt time.Duration, now time.Time) error {
	if err := at.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrObservation, err)
	}
	if rtt <= 0 || rtt > maxRTT {
		return fmt.Errorf("%w: a round trip of %v", ErrObservation, rtt)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.heard[from]; ok && now.Sub(last) < again {
		return fmt.Errorf("%w: this peer was observed %v ago", ErrObservation, now.Sub(last))
	}
	s.remember(from, now)
	was := s.client.GetCoordinate()
	is, err := s.client.Update(from, s.float(at), rtt)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrObservation, err)
	}
	s.hold(was, is, max(leastStep, partOfRTT*rtt.Seconds()))
	if err := s.client.SetCoordinate(is); err != nil {
		return fmt.Errorf("%w: %w", ErrObservation, err)
	}
	s.seen++
	return nil
}

// remember bounds the memory of peers: it drops the least recently observed one.
func (s *Space) remember(from string, now time.Time) {
	if _, ok := s.heard[from]; !ok && len(s.heard) >= maxPeers {
		oldest := ""
		for p, at := range s.heard {
			if oldest == "" || at.Before(s.heard[oldest]) {
				oldest = p
			}
		}
		delete(s.heard, oldest)
		s.client.ForgetNode(oldest)
	}
	s.heard[from] = now
}

// hold keeps a move within a step, and the coordinate within its range.
func (s *Space) hold(was, is *coordinate.Coordinate, step float64) {
	moved := 0.0
	for i := range is.Vec {
		d := is.Vec[i] - was.Vec[i]
		moved += d * d
	}
	part := 1.0
	if moved = math.Sqrt(moved); moved > step {
		part = step / moved
	}
	const most = float64(market.MaxCoordinate) / 1e6
	for i := range is.Vec {
		is.Vec[i] = min(max(was.Vec[i]+(is.Vec[i]-was.Vec[i])*part, -most), most)
	}
	is.Height = min(max(is.Height, was.Height-step, s.config.HeightMin), was.Height+step, most)
	is.Error = min(is.Error, was.Error+doubtStep, s.config.VivaldiErrorMax)
	is.Adjustment = 0
}

// Coordinate returns the peer's coordinate; zero after too few observations.
func (s *Space) Coordinate() market.Coordinate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen < least {
		return market.Coordinate{}
	}
	return fixed(s.client.GetCoordinate())
}

// published is the peer's coordinate for other peers: from its first observation on, so that some peer begins.
func (s *Space) published() market.Coordinate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fixed(s.client.GetCoordinate())
}

func fixed(c *coordinate.Coordinate) market.Coordinate {
	var out market.Coordinate
	for i, v := range c.Vec {
		out.Vec[i] = int32(math.Round(min(max(v*1e6, -market.MaxCoordinate), market.MaxCoordinate)))
	}
	out.Height = uint32(math.Round(min(max(c.Height*1e6, 1), market.MaxCoordinate)))
	out.Error = uint32(math.Round(min(max(c.Error*1e6, 0), market.MaxCoordinateError)))
	return out
}
