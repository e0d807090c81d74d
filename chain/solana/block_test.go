package solana

import (
	"errors"
	"fmt"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market/sign"
)

// What draws is believed when two endpoints tell the same, and no other slot than was asked for.
func TestBlock(t *testing.T) {
	t.Parallel()
	block := func(n byte) string {
		return fmt.Sprintf(`{"blockhash":"%s","previousBlockhash":"%s","parentSlot":104}`, sign.Key{n}, sign.Key{9})
	}
	one := map[string]string{"getBlocksWithLimit": "[105]", "getBlock": block(1)}
	for name, c := range map[string]struct {
		say []map[string]string
		err error
	}{
		"the only one":        {say: []map[string]string{one}},
		"two":                 {say: []map[string]string{one, one}},
		"two of three":        {say: []map[string]string{one, {"getBlocksWithLimit": "[105]", "getBlock": block(2)}, one}},
		"not yet":             {say: []map[string]string{{"getBlocksWithLimit": "[]"}}, err: chain.ErrNotFound},
		"not yet at one":      {say: []map[string]string{one, {"getBlocksWithLimit": "[]"}}, err: chain.ErrNotFound},
		"two that differ":     {say: []map[string]string{one, {"getBlocksWithLimit": "[105]", "getBlock": block(2)}}, err: chain.ErrDown},
		"an earlier slot":     {say: []map[string]string{{"getBlocksWithLimit": "[103]", "getBlock": block(1)}}, err: chain.ErrDown},
		"more than asked for": {say: []map[string]string{{"getBlocksWithLimit": "[105,106]", "getBlock": block(1)}}, err: chain.ErrDown},
		"no hash":             {say: []map[string]string{{"getBlocksWithLimit": "[105]", "getBlock": block(0)}}, err: chain.ErrDown},
		"no block":            {say: []map[string]string{{"getBlocksWithLimit": "[105]", "getBlock": "null"}}, err: chain.ErrDown},
		"nonsense":            {say: []map[string]string{{"getBlocksWithLimit": "7"}}, err: chain.ErrDown},
	} {
		var urls []string
		for _, s := range c.say {
			urls = append(urls, fake(t, s))
		}
		l, err := New(Config{RPC: urls, Key: sign.NewPrivate([32]byte{1}), Mint: sign.Key{9}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Block(t.Context(), 105)
		if !errors.Is(err, c.err) || c.err == nil && (b.Slot != 105 || b.Hash != sign.Hash{1}) {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
}
