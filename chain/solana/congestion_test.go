package solana

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	solanago "github.com/gagliardetto/solana-go"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// busy is a cluster, as its RPC server shows it, that has room only for transactions that bid enough for a unit; the others are dropped
// without a word. It tells what others paid.
type busy struct {
	cheapest, told uint64

	mu     sync.Mutex
	height uint64
	bids   []uint64 // of the transactions that were sent, each once, in lamports
	prices []uint64
	seen   map[string]bool
	landed map[string]bool
}

func (b *busy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct {
		ID     json.RawMessage
		Method string
		Params []json.RawMessage
	}
	if json.NewDecoder(r.Body).Decode(&call) != nil {
		http.Error(w, "not JSON", http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, b.answer(call.Method, call.Params))
}

func (b *busy) answer(method string, params []json.RawMessage) string {
	context := fmt.Sprintf(`"context":{"slot":%d}`, b.height)
	switch method {
	case "getRecentPrioritizationFees":
		return fmt.Sprintf(`[{"slot":1,"prioritizationFee":0},{"slot":2,"prioritizationFee":%d},{"slot":3,"prioritizationFee":%d}]`, b.told, b.told)
	case "getLatestBlockhash":
		return fmt.Sprintf(`{%s,"value":{"blockhash":%q,"lastValidBlockHeight":%d}}`, context, solanago.Hash(sign.Sum([]byte{byte(b.height)})), b.height+150)
	case "getMultipleAccounts":
		return fmt.Sprintf(`{%s,"value":[{"lamports":1000000000,"owner":"11111111111111111111111111111111","data":["","base64"],"executable":false,"rentEpoch":0}]}`, context)
	case "sendTransaction":
		return fmt.Sprintf("%q", b.take(params[0]))
	case "getSignatureStatuses":
		var ids []string
		_ = json.Unmarshal(params[0], &ids)
		if b.landed[ids[0]] {
			return fmt.Sprintf(`{%s,"value":[{"slot":%d,"confirmations":1,"err":null,"confirmationStatus":"confirmed","status":{"Ok":null}}]}`, context, b.height)
		}
		b.height += 50 // time passes
		return fmt.Sprintf(`{%s,"value":[null]}`, context)
	case "getFirstAvailableBlock":
		return "0"
	}
	return fmt.Sprint(b.height) // getSlot, getBlockHeight
}

// take reads a transaction's bid, and puts it into a block if that is enough.
func (b *busy) take(encoded json.RawMessage) string {
	var text string
	_ = json.Unmarshal(encoded, &text)
	raw, _ := base64.StdEncoding.DecodeString(text)
	tx, err := solanago.TransactionFromBytes(raw)
	if err != nil {
		return ""
	}
	id := tx.Signatures[0].String()
	message, _ := tx.Message.MarshalBinary()
	_, in, err := transaction.ParseMessage(message)
	_, units, price, ok := svm.SplitBudget(in)
	if err == nil && ok && !b.seen[id] {
		b.bids, b.prices = append(b.bids, chain.BidLamports(price, units)), append(b.prices, price)
	}
	b.seen[id] = true
	if price >= b.cheapest && ok {
		b.landed[id] = true
	}
	return id
}

// In full blocks a transaction that bids what was paid before is lost, and the ones that are signed for it then bid twice as much each, until one
// lands; what the server tells of others' bids, be it a lie, takes no more than the most that a transaction may cost.
func TestAttackCongestionOutbid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cheapest, told uint64
		tries          int
		lands          bool
	}{
		"free blocks":       {0, 0, 1, true},
		"as others pay":     {20_000, 20_000, 1, true},
		"more than told":    {20_000, 3_000, 4, true},
		"nothing is enough": {1 << 63, 3_000, runAttempts, false},
		"a lie":             {1 << 63, 1 << 62, runAttempts, false},
	} {
		b := &busy{cheapest: c.cheapest, told: c.told, height: 1000, seen: map[string]bool{}, landed: map[string]bool{}}
		srv := httptest.NewServer(b)
		t.Cleanup(srv.Close)
		l := newLedger(t, srv.URL)
		l.Wallet.cfg.Program, l.Wallet.cfg.Network = sign.Key{7}, sign.Key{8}
		call := program.RetireBegin{Escrow: sign.Key{1}, Tranche: sign.Key{2}, Network: sign.Key{8}, Signers: []sign.Key{l.Wallet.cfg.Key.Key()}}.Instruction(l.Wallet.cfg.Program)
		_, err := l.Run(t.Context(), []svm.Instruction{call})
		if (err == nil) != c.lands || len(b.bids) != c.tries {
			t.Errorf("%s: %d transactions, %v", name, len(b.bids), err)
		}
		most := l.Wallet.cfg.Fees.Most
		for i, lamports := range b.bids {
			if lamports > most || i > 0 && b.prices[i] != 2*b.prices[i-1] && lamports < most-1 {
				t.Errorf("%s: bids of %d lamports, prices %d", name, b.bids, b.prices)
			}
		}
	}
}
