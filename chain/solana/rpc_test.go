package solana

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	solanago "github.com/gagliardetto/solana-go"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// fake is an RPC server that answers each method with a fixed result, or with an error when the text begins "error".
func fake(t *testing.T, results map[string]string) string {
	t.Helper()
	return fakeOf(t, func(method string) (string, bool) {
		result, ok := results[method]
		return result, ok
	})
}

// fakeOf is such a server whose results a function gives.
func fakeOf(t *testing.T, results func(method string) (string, bool)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}
		result, ok := results(call.Method)
		switch {
		case !ok:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, call.ID)
		case strings.HasPrefix(result, "error "):
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, call.ID, strings.TrimPrefix(result, "error "))
		case strings.HasPrefix(result, "raw "):
			fmt.Fprint(w, strings.TrimPrefix(result, "raw "))
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, result)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/secret-key"
}

func newLedger(t *testing.T, urls ...string) *Ledger {
	t.Helper()
	l, err := New(Config{RPC: urls, Key: sign.NewPrivate([32]byte{1}), Mint: chaintest.RandomKey(), Decimals: 6})
	if err != nil {
		t.Fatal(err)
	}
	l.mintOK = true
	return l
}

// TestDown: whatever is not an answer is ErrDown, says what to do, and shows no path of the URL.
func TestDown(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"nobody listens": "http://127.0.0.1:1/secret-key",
		"no such host":   "http://nowhere.invalid/secret-key",
		"not JSON":       fake(t, map[string]string{"getSlot": "raw <html>"}),
		"nothing":        fake(t, map[string]string{"getSlot": "raw "}),
		"wrong type":     fake(t, map[string]string{"getSlot": `{"a":1}`}),
		"behind":         fake(t, map[string]string{"getSlot": `error {"code":-32005,"message":"node is behind"}`}),
		"over limits":    fake(t, map[string]string{"getSlot": `error {"code":429,"message":"slow down"}`}),
	} {
		_, err := newLedger(t, url).Slot(t.Context())
		if !errors.Is(err, chain.ErrDown) || !strings.Contains(err.Error(), "--solana-rpc") || strings.Contains(err.Error(), "secret-key") {
			t.Errorf("%s: %v", name, err)
		}
	}
	up := fake(t, map[string]string{"getSlot": "77"})
	if slot, err := newLedger(t, "http://127.0.0.1:1", up, up).Slot(t.Context()); err != nil || slot != 77 {
		t.Errorf("two of three endpoints: %d, %v", slot, err)
	}
	if _, err := newLedger(t, "http://127.0.0.1:1", up).Slot(t.Context()); !errors.Is(err, chain.ErrDown) {
		t.Errorf("one of two endpoints: %v", err)
	}
	if _, err := newLedger(t, fake(t, nil)).Slot(t.Context()); err == nil || errors.Is(err, chain.ErrDown) {
		t.Errorf("an endpoint that answers no: %v", err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	key, mint := sign.NewPrivate([32]byte{1}), sign.Key{1}
	for name, cfg := range map[string]Config{
		"no endpoint": {Key: key, Mint: mint},
		"no key":      {RPC: []string{"http://a"}, Mint: mint},
		"no mint":     {RPC: []string{"http://a"}, Key: key},
		"not a URL":   {RPC: []string{"a:b:c"}, Key: key, Mint: mint},
		"a file":      {RPC: []string{"file:///etc"}, Key: key, Mint: mint},
	} {
		if _, err := New(cfg); !errors.Is(err, cluster.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStatusAt: when one endpoint's answers make a transaction expired, and when they do not.
func TestStatusAt(t *testing.T) {
	t.Parallel()
	unseen := func(slot int) string { return fmt.Sprintf(`{"context":{"slot":%d},"value":[null]}`, slot) }
	seen := func(commitment, err string) string {
		return fmt.Sprintf(`{"context":{"slot":500},"value":[{"slot":300,"confirmations":null,"err":%s,"confirmationStatus":%q,"status":{"Ok":null}}]}`, err, commitment)
	}
	for name, c := range map[string]struct {
		height, status, first string
		want                  chain.TxState
		err                   error
	}{
		"not yet":           {"400", unseen(500), "0", chain.Unknown, nil},
		"too young":         {`error {"code":-32603,"message":"not to be asked"}`, unseen(449), "0", chain.Unknown, nil},
		"at its last block": {"450", unseen(500), "0", chain.Unknown, nil},
		"past it":           {"451", unseen(500), "300", chain.Expired, nil},
		"other server":      {"451", unseen(499), "0", chain.Unknown, nil},
		"forgotten":         {"451", unseen(500), "301", chain.Unknown, chain.ErrHistory},
		"processed":         {"451", seen("processed", "null"), "0", chain.Pending, nil},
		"confirmed":         {"451", seen("confirmed", "null"), "0", chain.Confirmed, nil},
		"finalized":         {"451", seen("finalized", "null"), "0", chain.Finalized, nil},
		"failed":            {"451", seen("finalized", `{"InstructionError":[1,{"Custom":1}]}`), "0", chain.Failed, nil},
		"failed, not final": {"451", seen("confirmed", `"AccountInUse"`), "0", chain.Pending, nil},
		"new commitment":    {"451", seen("rooted-twice", "null"), "0", chain.Pending, nil},
		"no height":         {`error {"code":-32603,"message":"internal"}`, unseen(500), "0", chain.Unknown, chain.ErrDown},
	} {
		l := newLedger(t, fake(t, map[string]string{"getSlot": "500", "getBlockHeight": c.height, "getSignatureStatuses": c.status, "getFirstAvailableBlock": c.first}))
		tx := chain.Prepared{ID: chain.TxID(sign.Signature{7}.String()), LastValid: 450, Since: 300}
		status, err := l.Status(t.Context(), tx)
		if status.State != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v; want %v, %v", name, status.State, err, c.want, c.err)
		}
		if failed := strings.HasPrefix(name, "failed"); failed != (status.Err != "") {
			t.Errorf("%s: error %q", name, status.Err)
		}
	}
}

// A transaction that is sent again may be refused because it landed meanwhile. It landed all the same; one that is refused at first did not.
func TestConfirmRefusedAgain(t *testing.T) {
	t.Parallel()
	key := sign.NewPrivate([32]byte{1})
	id, raw, err := transaction.Sign([]svm.Instruction{svm.TransferTokens(chaintest.RandomKey(), chaintest.RandomKey(), chaintest.RandomKey(), key.Key(), 1, 6)}, nil, sign.Hash{3}, key)
	if err != nil {
		t.Fatal(err)
	}
	tx := chain.Prepared{ID: id, Raw: raw, LastValid: 450, Since: 300}
	const refused = `error {"code":-32002,"message":"Transaction simulation failed: custom program error: 0x0"}`
	for _, first := range []string{fmt.Sprintf("%q", id), refused} {
		var sends atomic.Int32
		l := newLedger(t, fakeOf(t, func(method string) (string, bool) {
			switch method {
			case "sendTransaction":
				if sends.Add(1) == 1 {
					return first, true
				}
				return refused, true
			case "getSignatureStatuses":
				if sends.Load() < 2 {
					return `{"context":{"slot":500},"value":[null]}`, true
				}
				return `{"context":{"slot":500},"value":[{"slot":300,"confirmations":1,"err":null,"confirmationStatus":"confirmed","status":{"Ok":null}}]}`, true
			}
			result, ok := map[string]string{"getSlot": "500", "getBlockHeight": "400", "getFirstAvailableBlock": "0"}[method]
			return result, ok
		}))
		landed, err := l.Confirm(t.Context(), tx)
		if first == refused && !errors.Is(err, chain.ErrRejected) || first != refused && (err != nil || !landed) {
			t.Errorf("first answer %s: landed %t, %v", first, landed, err)
		}
	}
}

// TestCombine: what several endpoints say, taken together.
func TestCombine(t *testing.T) {
	t.Parallel()
	const u, p, c, f, x, e, down = chain.Unknown, chain.Pending, chain.Confirmed, chain.Finalized, chain.Failed, chain.Expired, chain.TxState(99)
	for _, test := range []struct {
		said []chain.TxState
		want chain.TxState
		err  error
	}{
		{[]chain.TxState{f}, f, nil}, // the only one configured
		{[]chain.TxState{e}, e, nil},
		{[]chain.TxState{f, f}, f, nil},
		{[]chain.TxState{f, u}, c, nil}, // one of two is not enough
		{[]chain.TxState{f, down}, c, nil},
		{[]chain.TxState{x, down}, p, nil},
		{[]chain.TxState{e, down}, u, nil},
		{[]chain.TxState{e, u}, u, nil},
		{[]chain.TxState{e, e, u}, e, nil}, // the third lags
		{[]chain.TxState{f, f, down}, f, nil},
		{[]chain.TxState{x, x, c}, x, nil},
		{[]chain.TxState{u, p, c}, c, nil},
		{[]chain.TxState{u, p}, p, nil},
		{[]chain.TxState{e, e, p}, u, chain.ErrDisagree}, // two endpoints lie, or one does
		{[]chain.TxState{e, f}, u, chain.ErrDisagree},
		{[]chain.TxState{f, f, x}, u, chain.ErrDisagree},
		{[]chain.TxState{down, down}, u, chain.ErrDown},
	} {
		var answers []cluster.Answer[chain.TxStatus]
		for _, s := range test.said {
			if s == down {
				answers = append(answers, cluster.Answer[chain.TxStatus]{Err: chain.ErrDown})
			} else {
				answers = append(answers, cluster.Answer[chain.TxStatus]{Value: chain.TxStatus{State: s}})
			}
		}
		got, err := combine(t.Context(), answers)
		if got.State != test.want || !errors.Is(err, test.err) {
			t.Errorf("%v: %v, %v; want %v, %v", test.said, got.State, err, test.want, test.err)
		}
	}
}

func memoInstruction(text string) svm.Instruction {
	return svm.Instruction{Program: sign.Key(solanago.MemoProgramID), Data: []byte(text)}
}

func TestRejection(t *testing.T) {
	t.Parallel()
	sent := map[string]string{
		`error {"code":-32002,"message":"Transaction simulation failed: This transaction has already been processed"}`:                            "",
		`error {"code":-32002,"message":"Transaction simulation failed: Blockhash not found"}`:                                                    "",
		`error {"code":-32002,"message":"Transaction simulation failed: Error processing Instruction 2: custom program error: 0x1"}`:              "allowance",
		`error {"code":-32002,"message":"Transaction simulation failed: Error processing Instruction 2: custom program error: 0x11"}`:             "other",
		`error {"code":-32002,"message":"failed: custom program error: 0x1","data":{"logs":["Transfer: insufficient lamports 5, need 2039280"]}}`: "fees",
		`error {"code":-32003,"message":"Transaction signature verification failure"}`:                                                            "other",
		`error {"code":-32005,"message":"Node is behind"}`:                                                                                        "down",
	}
	for result, want := range sent {
		l := newLedger(t, fake(t, map[string]string{"sendTransaction": result}))
		id, raw, err := transaction.Sign([]svm.Instruction{memoInstruction("x")}, nil, sign.Hash{1}, l.Wallet.cfg.Key)
		if err != nil {
			t.Fatal(err)
		}
		err = l.Send(t.Context(), chain.Prepared{ID: id, Raw: raw})
		got := map[bool]string{}
		got[err == nil] = ""
		switch {
		case errors.Is(err, chain.ErrFees):
			got[true] = "fees"
		case errors.Is(err, chain.ErrAllowance):
			got[true] = "allowance"
		case errors.Is(err, chain.ErrRejected):
			got[true] = "other"
		case errors.Is(err, chain.ErrDown):
			got[true] = "down"
		}
		if got[true] != want {
			t.Errorf("%s: %v, want %q", result, err, want)
		}
	}
}

// encodeTokenAccount is decodeTokenAccount's inverse, for what it reads.
func encodeTokenAccount(a tokenAccount) []byte {
	b := make([]byte, tokenAccountSize)
	copy(b, a.mint[:])
	copy(b[32:], a.owner[:])
	copy(b[64:], amountData(0, a.amount, 0)[1:9])
	b[108] = 1
	if a.frozen {
		b[108] = 2
	}
	if !a.delegate.IsZero() || a.delegated > 0 {
		b[72] = 1
		copy(b[76:], a.delegate[:])
		copy(b[121:], amountData(0, a.delegated, 0)[1:9])
	}
	return b
}

func FuzzTokenAccount(f *testing.F) {
	f.Add(encodeTokenAccount(tokenAccount{mint: sign.Key{1}, owner: sign.Key{2}, amount: 3}))
	f.Add(encodeTokenAccount(tokenAccount{mint: sign.Key{1}, owner: sign.Key{2}, delegate: sign.Key{4}, amount: 3, delegated: 5, frozen: true}))
	f.Add(make([]byte, tokenAccountSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeTokenAccount(b)
		if err != nil {
			return
		}
		again, err := decodeTokenAccount(encodeTokenAccount(a))
		if err != nil || again != a {
			t.Fatalf("%+v comes back as %+v, %v", a, again, err)
		}
	})
}

// FuzzTransaction: no bytes from an endpoint make the parser panic, and what it takes comes back as the same bytes.
func FuzzTransaction(f *testing.F) {
	l, err := New(Config{RPC: []string{"http://127.0.0.1:1"}, Key: sign.NewPrivate([32]byte{1}), Mint: sign.Key{3}, Decimals: 6})
	if err != nil {
		f.Fatal(err)
	}
	anchor := program.Anchor{Authority: l.Wallet.cfg.Key.Key(), Anchor: account.AnchorAddress(sign.Key{7}, l.Wallet.cfg.Key.Key(), sign.Hash{8}), Root: sign.Hash{8}, Count: 3}
	for _, in := range []svm.Instruction{memoInstruction("memo"), svm.OpenTokenAccount(l.Wallet.cfg.Key.Key(), sign.Key{5}, sign.Key{3}), anchor.Instruction(sign.Key{7})} {
		_, raw, err := transaction.Sign([]svm.Instruction{in}, nil, sign.Hash{9}, l.Wallet.cfg.Key)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		tx, err := transaction.Parse(b)
		if err != nil {
			return
		}
		again, err := tx.MarshalBinary()
		if err != nil {
			return // the library reads forms that it cannot write
		}
		if second, err := transaction.Parse(again); err != nil || second.Signatures[0] != tx.Signatures[0] {
			t.Fatalf("what was parsed once is refused: %v", err)
		}
		_, _ = transaction.ParseSigned(b, tx.Signatures[0])
		_, _ = memoIn(tx)
		if a, ok := anchorIn(tx, sign.Key{7}); ok && a.Anchor != account.AnchorAddress(sign.Key{7}, a.Authority, a.Root) {
			t.Fatalf("an anchor of no address: %+v", a)
		}
	})
}
