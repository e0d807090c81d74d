package mystery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/store"
)

// kindDay is what was reserved on a day, by the day: kindPurchase a purchase, by its id.
const (
	kindDay      = "mystery-day"
	kindPurchase = "mystery"
)

// ErrSpent says that a purchase would take more than the day's allowance.
var ErrSpent = errors.New("the day's allowance for mystery rentals is used up")

// purse keeps to an allowance for each day of UTC. What a purchase may cost at the most is reserved, and journalled with it, before
// anything is ordered, and is never given back: so a day never costs more, whatever is lost in a crash.
type purse struct {
	store  store.Store
	perDay market.Amount
	mu     sync.Mutex
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// reserved is what a day's purchases may cost together.
func (p *purse) reserved(ctx context.Context, d string) (market.Amount, error) {
	b, err := p.store.Get(ctx, kindDay, d)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	var n market.Amount
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return 0, fmt.Errorf("reading what mystery rentals cost on %s: %w", d, err)
	}
	return n, nil
}

// reserve sets aside what a purchase can cost, and journals the purchase with it. ErrSpent.
func (p *purse) reserve(ctx context.Context, now time.Time, most market.Amount, id string, purchase []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, err := p.reserved(ctx, day(now))
	if err != nil {
		return err
	}
	if most > p.perDay || was > p.perDay-most {
		return fmt.Errorf("%w: %d of %d base units are reserved, %d more are not there", ErrSpent, was, p.perDay, most)
	}
	b, err := json.Marshal(was + most)
	if err != nil {
		return err
	}
	return p.store.Write(ctx, store.Put{Kind: kindDay, Key: day(now), Value: b}, store.Put{Kind: kindPurchase, Key: id, Value: purchase})
}
