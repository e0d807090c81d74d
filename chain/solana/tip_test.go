package solana

import (
	"errors"
	"strconv"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
)

// One endpoint that lies, wherever it stands among them, does not move the slot.
func TestAttackOneEndpointLiesAboutSlot(t *testing.T) {
	t.Parallel()
	at := func(slot int) string { return fake(t, map[string]string{"getSlot": strconv.Itoa(slot)}) }
	down := "http://127.0.0.1:1"
	for name, c := range map[string]struct {
		urls []string
		want market.Slot // 0: none is told
	}{
		"the first of three, high":  {[]string{at(900_000_000), at(300_000_010), at(300_000_000)}, 300_000_010},
		"the first of three, low":   {[]string{at(1), at(300_000_010), at(300_000_000)}, 300_000_000},
		"the last of three, high":   {[]string{at(300_000_000), at(300_000_010), at(900_000_000)}, 300_000_010},
		"one of two":                {[]string{at(900_000_000), at(300_000_000)}, 0},
		"one of two, near":          {[]string{at(300_000_140), at(300_000_000)}, 300_000_000},
		"two of three, one is down": {[]string{at(900_000_000), at(300_000_000), down}, 0},
		"all differ":                {[]string{at(900_000_000), at(300_000_000), at(100)}, 0},
		"one of four":               {[]string{at(900_000_000), at(300_000_000), at(300_000_001), at(300_000_002)}, 300_000_001},
		"the only one":              {[]string{at(300_000_000)}, 300_000_000},
	} {
		tip, err := newLedger(t, c.urls...).Tip(t.Context())
		if c.want == 0 && !errors.Is(err, chain.ErrDown) || c.want != 0 && (err != nil || tip != chain.Tip{Confirmed: c.want, Final: c.want}) {
			t.Errorf("%s: %+v, %v; want %d", name, tip, err, c.want)
		}
	}
}
