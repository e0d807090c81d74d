package programtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
)

const (
	pollEvery   = 10 * time.Millisecond
	landTimeout = 2 * time.Minute // on a busy machine
	attempts    = 10              // tries with a fresh blockhash, each after an expired one
)

// stale is the error of a transaction with an old blockhash.
const stale = `"BlockhashNotFound"`

type surfpool struct {
	chain *localnet.Chain
	admin *solana.Admin

	mu   sync.Mutex
	used string // the last used blockhash
}

// Surfpool starts a local chain that ends with the test, or skips the test as localnettest.Start does.
func Surfpool(t testing.TB) Engine {
	t.Helper()
	c := localnettest.Start(t, localnet.Config{})
	admin, err := solana.NewAdmin(c.URL(), c.Genesis("test", 1).Chain, c.Faucet())
	if err != nil {
		t.Fatal(err)
	}
	return &surfpool{chain: c, admin: admin}
}

func (e *surfpool) Name() string { return "Surfpool" }

func (e *surfpool) Deploy(ctx context.Context, program sign.Private, elf []byte) error {
	return e.chain.Deploy(ctx, program, elf)
}

func (e *surfpool) Fund(ctx context.Context, to sign.Key, lamports uint64) error {
	return e.chain.FundKey(ctx, to, 0, lamports)
}

// Mint implements Minter.
func (e *surfpool) Mint(
	ctx context.Context, mint sign.Private, decimals uint8, amount, lamports uint64, wallets ...sign.Key,
) error {
	if err := e.admin.CreateMint(ctx, mint, decimals); err != nil {
		return err
	}
	grants := make([]solana.Grant, len(wallets))
	for i, k := range wallets {
		grants[i] = solana.Grant{To: k, Tokens: market.Amount(amount), Lamports: lamports}
	}
	return e.admin.Fund(ctx, mint.Key(), decimals, grants...)
}

// Run sends the transaction without a preflight check, so that failed transactions land too.
func (e *surfpool) Run(ctx context.Context, instructions []svm.Instruction, signers ...sign.Signer) (Result, error) {
	for range attempts {
		blockhash, err := e.blockhash(ctx)
		if err != nil {
			return Result{}, err
		}
		raw, err := signed(instructions, blockhash, signers)
		if err != nil {
			return Result{}, err
		}
		var id string
		err = e.call(ctx, &id, "sendTransaction", base64.StdEncoding.EncodeToString(raw),
			map[string]any{"encoding": "base64", "skipPreflight": true})
		if err != nil && strings.Contains(strings.ToLower(err.Error()), "blockhash") {
			continue
		}
		if err != nil {
			return Result{}, err
		}
		if r, err := e.landed(ctx, id, blockhash); r != nil || err != nil {
			return *cmp.Or(r, &Result{}), err
		}
	}
	return Result{}, fmt.Errorf("%d transactions in a row expired", attempts)
}

// landed waits for a transaction; it returns nil if its blockhash expired before it landed.
func (e *surfpool) landed(ctx context.Context, id, blockhash string) (*Result, error) {
	var found *struct {
		Slot uint64
		Meta struct {
			Err                  json.RawMessage
			LogMessages          []string
			ComputeUnitsConsumed uint64
		}
	}
	err := e.poll(ctx, func() (bool, error) {
		var valid struct{ Value bool } // requested first: after its expiry a transaction can no longer land
		if err := e.call(ctx, &valid, "isBlockhashValid", blockhash,
			map[string]any{"commitment": "confirmed"}); err != nil {
			return false, err
		}
		err := e.call(ctx, &found, "getTransaction", id,
			map[string]any{"encoding": "base64", "commitment": "confirmed", "maxSupportedTransactionVersion": 0})
		return found != nil || !valid.Value, err
	})
	if err != nil {
		return nil, fmt.Errorf("transaction %s: %w", id, err)
	}
	if found == nil {
		return nil, nil
	}
	text, err := errText(found.Meta.Err)
	if text == stale { // Surfpool records transactions that no block can contain, too
		return nil, err
	}
	return &Result{Err: text, Logs: found.Meta.LogMessages, Units: found.Meta.ComputeUnitsConsumed, Slot: found.Slot},
		err
}

// blockhash returns an unused blockhash: two transactions with the same contents and blockhash would be one.
func (e *surfpool) blockhash(ctx context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var latest struct{ Value struct{ Blockhash string } }
	err := e.poll(ctx, func() (bool, error) {
		err := e.call(ctx, &latest, "getLatestBlockhash", map[string]any{"commitment": "confirmed"})
		return latest.Value.Blockhash != e.used, err
	})
	e.used = latest.Value.Blockhash
	return e.used, err
}

func (e *surfpool) Account(ctx context.Context, key sign.Key) (*Account, error) {
	var found struct {
		Value *struct {
			Lamports uint64
			Owner    sign.Key
			Data     []string
		}
	}
	err := e.call(ctx, &found, "getAccountInfo", key.String(),
		map[string]any{"encoding": "base64", "commitment": "confirmed"})
	if err != nil || found.Value == nil {
		return nil, err
	}
	if len(found.Value.Data) == 0 {
		return nil, fmt.Errorf("account %s without data", key)
	}
	data, err := base64.StdEncoding.DecodeString(found.Value.Data[0])
	return &Account{Lamports: found.Value.Lamports, Owner: found.Value.Owner, Data: data}, err
}

func (e *surfpool) Slot(ctx context.Context) (uint64, error) {
	var slot uint64
	err := e.call(ctx, &slot, "getSlot", map[string]any{"commitment": "confirmed"})
	return slot, err
}

// poll calls f until it reports true.
func (e *surfpool) poll(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, landTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// call makes one JSON-RPC call.
func (e *surfpool) call(ctx context.Context, result any, method string, params ...any) error {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.chain.URL(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	var out struct {
		Result json.RawMessage
		Error  *struct{ Message string }
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if out.Error != nil {
		return fmt.Errorf("%s: %s", method, out.Error.Message)
	}
	if err := json.Unmarshal(out.Result, result); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}
