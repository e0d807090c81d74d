package cluster

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// TestAgreement: endpoints that see a busy escrow at different slots agree on what both saw, whenever that was.
func TestAgreement(t *testing.T) {
	t.Parallel()
	at := func(slot market.Slot, state byte) Sight {
		return Sight{slot, []Held{{Owner: sign.Key{1}, Data: []byte{state}}}}
	}
	for name, c := range map[string]struct {
		heard [][]Sight
		want  market.Slot // 0: none
	}{
		"a round later":        {[][]Sight{{at(10, 'a'), at(11, 'b')}, {at(11, 'b'), at(12, 'c')}}, 11},
		"the newer agreement":  {[][]Sight{{at(10, 'a'), at(12, 'b')}, {at(10, 'a'), at(13, 'b')}}, 12},
		"with oneself is none": {[][]Sight{{at(10, 'a'), at(11, 'a')}, {at(11, 'b')}}, 0},
		"never":                {[][]Sight{{at(10, 'a')}, {at(10, 'b')}, nil}, 0},
	} {
		if got, ok := agreement(c.heard, 2); ok != (c.want > 0) || got.Slot != c.want {
			t.Errorf("%s: %d, %v", name, got.Slot, ok)
		}
	}
}
