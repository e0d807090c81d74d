package harness

import (
	"context"
	"errors"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	rules "github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// Hardware opens the device that answers audits for a unit.
type Hardware = func(ctx context.Context, u market.Unit, asked audit.Asked) (device.Device, error)

// card is simulated hardware with the processor's answers and with times of the bubble: an audit takes the card's time
// regardless of this machine's load. A card does one operation at a time, for any unit.
type card struct {
	turn  chan struct{}
	share float64 // of the class's allowed time at the floor
}

// newCard returns a card that needs a share of the allowed time of its class.
func newCard(share float64) *card { return &card{make(chan struct{}, 1), share} }

// open has the card answer for a unit. A card can be opened for several units.
func (c *card) open(_ context.Context, u market.Unit, asked audit.Asked) (device.Device, error) {
	floor, _ := rules.FloorOf(u.Class, u.Resources)
	product, walk := floor.Deadlines(asked.Shape, asked.Walk)
	d := cpu.New(cpu.Config{Model: u.Model, Serial: u.Serial, Memory: asked.Walk.Bytes(), Threads: 1})
	return &unit{d, c, product, walk}, nil
}

// works occupies the card for a time.
func (c *card) works(micros uint64) {
	c.turn <- struct{}{}
	time.Sleep(time.Duration(c.share * float64(micros) * float64(time.Microsecond)))
	<-c.turn
}

// unit is a unit's view of a card.
type unit struct {
	device.Device
	card          *card
	product, walk uint64 // microseconds at the floor of the class
}

// Multiply takes the card's time for products.
func (u *unit) Multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) ([]sign.Hash, error) {
	tiles, err := u.Device.Multiply(ctx, seed, s)
	u.card.works(u.product)
	return tiles, err
}

// Commit takes the card's time for a fill.
func (u *unit) Commit(ctx context.Context, seed sign.Hash, s challenge.Shape) (*challenge.Commitment, error) {
	c, err := u.Device.Commit(ctx, seed, s)
	u.card.works(u.product)
	return c, err
}

// Walk takes the card's time for a walk; a repeated walk of a group takes almost none.
func (u *unit) Walk(ctx context.Context, key uint64, of device.Dataset, w challenge.Walk) ([]sign.Hash, error) {
	groups, err := u.Device.Walk(ctx, key, of, w)
	u.card.works(u.walk)
	return groups, err
}

var errMasks = errors.New("no mask is left")

// mask returns hosts with unknown keys, one per call, or an error if none is left; nil if the network has none.
func (n *Net) mask() func() (*p2p.Host, sign.Private, error) {
	if n.opts.Masks == 0 {
		return nil
	}
	return func() (*p2p.Host, sign.Private, error) {
		at := n.masks.Add(1)
		if at > int64(n.opts.Masks) {
			return nil, sign.Private{}, errMasks
		}
		i := n.opts.Providers + n.opts.Buyers + n.opts.Strangers + int(at) - 1
		seed, err := p2p.SeedOf(p2ptest.Key(i))
		return n.net.Hosts[i], sign.NewPrivate(seed), err
	}
}
