package entries

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/p2p"
)

// firstContact bounds the time until one of the first entries answers at the first use.
const firstContact = 20 * time.Second

// Pin is the genesis that a client believes, in full or by its hash. The zero Pin believes any.
type Pin struct {
	Genesis *market.Genesis // known in full
	Hash    *sign.Hash      // only its hash is known
}

// Check returns ErrOtherNetwork if an entry peer shows another genesis than the pinned one.
func (p Pin) Check(g market.Genesis) error {
	switch {
	case p.Genesis != nil && p.Genesis.Hash() != g.Hash():
		return fmt.Errorf("%w: genesis: got %s (%s), want the pinned %s (%s)", ErrOtherNetwork, g.Hash(), g.Tag(),
			p.Genesis.Hash(), p.Genesis.Tag())
	case p.Hash != nil && *p.Hash != g.Hash():
		return fmt.Errorf("%w: genesis: got %s (%s), want the pinned %s", ErrOtherNetwork, g.Hash(), g.Tag(), *p.Hash)
	}
	return nil
}

// Introduce returns the genesis that the first of the given entries shows which can be used and agrees with the pin. It
// returns ErrNoEntry if none does.
func Introduce(ctx context.Context, host p2p.Config, p Pin, given []peer.AddrInfo) (market.Genesis, error) {
	ctx, cancel := context.WithTimeout(ctx, firstContact)
	defer cancel()
	h, err := p2p.NewLight(host, false)
	if err != nil {
		return market.Genesis{}, err
	}
	defer h.Close()
	var errs []error
	for _, e := range given {
		err := h.Enter(ctx, e)
		if err == nil {
			var said entry.Hello
			if said, err = entry.Ask(ctx, h, e.ID); err == nil {
				err = p.Check(said.Genesis)
			}
			if err == nil {
				return said.Genesis, nil
			}
			err = fmt.Errorf("peer %s: %w", e.ID, err)
		}
		errs = append(errs, err)
	}
	return market.Genesis{}, fmt.Errorf("%w: %w", ErrNoEntry, errors.Join(errs...))
}
