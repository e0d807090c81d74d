package entry

import (
	"fmt"

	"github.com/starling-network/starling/node/service"
)

// Settings is the section of the configuration about a peer's service for light clients, which are no part of the
// network. It finds offers for them, gossips their orders and passes their calls to the chain on. The limits are for
// all clients together; 0 means the default.
type Settings struct {
	Serve bool `yaml:"serve"`
	// Finds, Orders and Calls are the limits on look-ups of offers, orders and calls to the chain per second.
	Finds  float64 `yaml:"finds"`
	Orders float64 `yaml:"orders"`
	Calls  float64 `yaml:"calls"`
}

// Default returns the section of a peer that serves within the default limits.
func Default() Settings { return Settings{Serve: true} }

// MaxOrders bounds the orders a second that one entry publishes for its clients. Others take a third more from it.
const MaxOrders = 15

// Check refuses a section that cannot work.
func (s Settings) Check() error {
	if s.Finds < 0 || s.Calls < 0 || s.Orders < 0 || s.Orders > MaxOrders {
		return fmt.Errorf("%w: entry: finds %g, orders %g, calls %g: want 0 or more, and at most %d orders per "+
			"second, others pass on no more", service.ErrConfig, s.Finds, s.Orders, s.Calls, MaxOrders)
	}
	return nil
}

// Limits returns the limits of the section.
func (s Settings) Limits() Limits { return Limits{Finds: s.Finds, Orders: s.Orders, Calls: s.Calls} }
