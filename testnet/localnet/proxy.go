package localnet

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"time"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

const (
	maxRequest  = 1 << 20  // bytes
	maxAnswer   = 16 << 20 // bytes
	maxBatch    = 100      // calls in one request
	callTimeout = 30 * time.Second
)

// allowed are the permitted methods: Solana's own, by name. The runtime's cheats (surfnet_*) and future additions are
// refused, so that a peer cannot depend on a method that a real cluster lacks. requestAirdrop is the only exception, as
// on every test cluster: it makes lamports, never tokens.
//
// chain/solana itself needs getBlockHeight, getFirstAvailableBlock, getGenesisHash, getLatestBlockhash,
// getMinimumBalanceForRentExemption, getMultipleAccounts, getProgramAccounts, getSignatureStatuses, getSlot,
// getTransaction, sendTransaction.
var allowed = setOf(
	"getAccountInfo", "getBalance", "getBlock", "getBlockCommitment", "getBlockHeight", "getBlockTime", "getBlocks",
	"getBlocksWithLimit", "getEpochInfo", "getEpochSchedule", "getFeeForMessage", "getFirstAvailableBlock",
	"getGenesisHash", "getHealth", "getIdentity", "getLatestBlockhash", "getMinimumBalanceForRentExemption",
	"getMultipleAccounts", "getProgramAccounts", "getRecentPrioritizationFees", "getSignatureStatuses",
	"getSignaturesForAddress", "getSlot", "getTokenAccountBalance", "getTokenAccountsByDelegate",
	"getTokenAccountsByOwner", "getTokenLargestAccounts", "getTokenSupply", "getTransaction", "getTransactionCount",
	"getVersion", "isBlockhashValid", "minimumLedgerSlot", "requestAirdrop", "sendTransaction", "simulateTransaction",
)

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

// call is one JSON-RPC request.
type call struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

// proxy is an HTTP proxy for the runtime's RPC port.
type proxy struct {
	to     string
	client *http.Client
	server *http.Server
	url    string
	done   chan struct{}
}

func startProxy(to string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the RPC proxy: %w", err)
	}
	p := &proxy{to: to, url: "http://" + listener.Addr().String(), done: make(chan struct{}),
		client: &http.Client{Timeout: callTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: callTimeout}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(listener) // http.ErrServerClosed
	}()
	return p, nil
}

func (p *proxy) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := p.server.Shutdown(ctx)
	if err != nil {
		err = p.server.Close()
	}
	<-p.done
	p.client.CloseIdleConnections()
	return err
}

// ServeHTTP handles one call or a batch. It accepts only JSON content, which no page of another origin may send
// unasked.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); r.Method != http.MethodPost || err != nil ||
		kind != "application/json" {
		http.Error(w, "POST application/json", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "request too large or cut off", http.StatusRequestEntityTooLarge)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(p.answer(r.Context(), body))
}

func (p *proxy) answer(ctx context.Context, body []byte) []byte {
	calls, batch, err := parseCalls(body)
	if err != nil {
		return failure(nil, -32600, err.Error())
	}
	answers := make([]json.RawMessage, len(calls))
	for i, c := range calls {
		answers[i] = p.one(ctx, c)
	}
	if !batch {
		return answers[0]
	}
	out, err := json.Marshal(answers)
	if err != nil {
		return failure(nil, -32603, "answer of the runtime is not JSON")
	}
	return out
}

// parseCalls parses one call or a batch of calls.
func parseCalls(body []byte) (calls []call, batch bool, err error) {
	body = bytes.TrimSpace(body)
	if batch = len(body) > 0 && body[0] == '['; !batch {
		calls = make([]call, 1)
		err = json.Unmarshal(body, &calls[0])
	} else {
		err = json.Unmarshal(body, &calls)
	}
	switch {
	case err != nil:
		return nil, batch, errors.New("not a JSON-RPC request")
	case len(calls) == 0 || len(calls) > maxBatch:
		return nil, batch, fmt.Errorf("batch of %d calls, want 1 to %d", len(calls), maxBatch)
	}
	return calls, batch, nil
}

// one forwards an allowed call. It encodes the call again, so that runtime and proxy cannot parse it differently.
func (p *proxy) one(ctx context.Context, c call) json.RawMessage {
	if !allowed[c.Method] {
		return failure(c.ID, -32601, fmt.Sprintf("method %.64q is not allowed here", c.Method))
	}
	return p.pass(ctx, c)
}

// setAccount uses the only permitted cheat, for this process alone: it creates a rent-exempt account.
func (p *proxy) setAccount(ctx context.Context, key, owner sign.Key, data []byte) error {
	params, err := json.Marshal([]any{key.String(),
		map[string]any{"lamports": svm.Rent(len(data)), "owner": owner.String(), "data": hex.EncodeToString(data)}})
	if err != nil {
		return err
	}
	var out struct{ Error *struct{ Message string } }
	if err := json.Unmarshal(p.pass(ctx, call{ID: json.RawMessage("1"), Method: "surfnet_setAccount", Params: params}),
		&out); err != nil {
		return err
	}
	if out.Error != nil {
		return errors.New(out.Error.Message)
	}
	return nil
}

func (p *proxy) pass(ctx context.Context, c call) json.RawMessage {
	body, err := json.Marshal(struct {
		Version string `json:"jsonrpc"`
		call
	}{"2.0", c})
	if err != nil {
		return failure(c.ID, -32600, "not a JSON-RPC request")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.to, bytes.NewReader(body))
	if err != nil {
		return failure(c.ID, -32603, "request could not be made")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return failure(c.ID, -32603, "the local Solana runtime does not answer")
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil || !json.Valid(out) {
		return failure(c.ID, -32603, "answer of the runtime is cut off or not JSON")
	}
	if c.Method == "getBlock" || c.Method == "getTransaction" {
		out = fixBlockTime(out)
	}
	return out
}

// fixBlockTime corrects result.blockTime, which this version of the runtime returns in thousands of seconds
// (getBlockTime is right).
func fixBlockTime(answer []byte) []byte {
	var whole map[string]json.RawMessage
	var result map[string]json.RawMessage
	var seconds int64
	if json.Unmarshal(answer, &whole) != nil || json.Unmarshal(whole["result"], &result) != nil ||
		json.Unmarshal(result["blockTime"], &seconds) != nil || seconds <= 0 || seconds > 1e8 {
		return answer
	}
	result["blockTime"] = fmt.Appendf(nil, "%d", seconds*1000)
	fixed, err := json.Marshal(result)
	if err != nil {
		return answer
	}
	whole["result"] = fixed
	if out, err := json.Marshal(whole); err == nil {
		return out
	}
	return answer
}

func failure(id json.RawMessage, code int, message string) json.RawMessage {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	out, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id,
		"error": map[string]any{"code": code, "message": message}})
	if err != nil { // an id that is not JSON, which Unmarshal rejects before
		return json.RawMessage(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"malformed id"}}`)
	}
	return out
}
