// Package forward passes calls of others on to Solana's RPC servers: an entry peer does it for light clients.
package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/starling-network/starling/chain/solana/cluster"
)

// forwarded lists the methods that are forwarded for other peers: the ones that a Ledger uses itself.
var forwarded = map[string]bool{
	"getBlockHeight": true, "getFirstAvailableBlock": true, "getGenesisHash": true, "getLatestBlockhash": true,
	"getRecentPrioritizationFees": true, "getMinimumBalanceForRentExemption": true, "getMultipleAccounts": true,
	"getSignatureStatuses": true, "getSlot": true, "getTransaction": true, "sendTransaction": true,
	"getBlocksWithLimit": true, methodBlock: true,
}

// methodBlock is forwarded as a request for a final block without its transactions, which are megabytes, regardless of
// the call's options.
const methodBlock = "getBlock"

// slim are the parameters of such a call.
func slim(params json.RawMessage) (json.RawMessage, error) {
	var all []json.RawMessage
	var slot uint64
	if json.Unmarshal(params, &all) != nil || len(all) == 0 || json.Unmarshal(all[0], &slot) != nil {
		return nil, errors.New("getBlock without a slot")
	}
	return json.Marshal([]any{slot, map[string]any{"commitment": "finalized", "transactionDetails": "none",
		"rewards": false, "maxSupportedTransactionVersion": 0}})
}

const (
	maxForwardID = 64              // bytes of a call's id
	forwardTime  = 8 * time.Second // timeout of one server's answer
)

// JSON-RPC error codes of answers that are made here.
const (
	codeInvalid  = -32600
	codeNoMethod = -32601
	codeDown     = -32603 // a Ledger takes it for no answer
)

// Forwarder forwards the calls of other peers to RPC servers, one at a time, and only the methods that a Ledger uses.
// It sends its own encoding of the parsed call, so that server and forwarder cannot read it differently.
type Forwarder struct {
	urls   []string
	client *http.Client
	max    int64
}

// New checks the servers' URLs; they are tried in order until one answers. Answers beyond max bytes are not forwarded.
func New(rpc []string, max int64) (*Forwarder, error) {
	if _, err := cluster.New(rpc, [32]byte{}, nil); err != nil {
		return nil, err
	}
	return &Forwarder{urls: rpc, client: &http.Client{Timeout: forwardTime}, max: max}, nil
}

// rpcCall is one JSON-RPC request.
type rpcCall struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params,omitempty"`
}

// readCall parses one call that may be forwarded.
func readCall(body []byte) (rpcCall, int, error) {
	var c rpcCall
	if err := json.Unmarshal(body, &c); err != nil {
		return rpcCall{}, codeInvalid, errors.New("not a JSON-RPC call")
	}
	if len(c.ID) > maxForwardID {
		return rpcCall{}, codeInvalid, errors.New("the call's id is too long")
	}
	if !forwarded[c.Method] {
		return c, codeNoMethod, fmt.Errorf("method %.64q is not passed on", c.Method)
	}
	if c.Method == methodBlock {
		var err error
		if c.Params, err = slim(c.Params); err != nil {
			return c, codeInvalid, err
		}
	}
	c.Version = "2.0"
	return c, 0, nil
}

// Call returns the answer to one call, which may be an error in JSON-RPC's form. The error is the context's.
func (f *Forwarder) Call(ctx context.Context, body []byte) ([]byte, error) {
	c, code, err := readCall(body)
	if err != nil {
		return failure(c.ID, code, err.Error()), nil
	}
	again, err := json.Marshal(c)
	if err != nil {
		return failure(c.ID, codeInvalid, "not a JSON-RPC call"), nil
	}
	why := ""
	for _, u := range f.urls {
		answer, err := f.post(ctx, u, again)
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		why = err.Error()
	}
	return failure(c.ID, codeDown, why), nil
}

// post sends a call to one server. Errors do not contain its URL.
func (f *Forwarder) post(ctx context.Context, to string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the call could not be made")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.client.Do(req)
	if err != nil {
		var transport *url.Error
		if errors.As(err, &transport) && transport.Timeout() {
			return nil, errors.New("the chain's server does not answer in time")
		}
		return nil, errors.New("the chain's server cannot be reached")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the chain's server answers with HTTP status %d", resp.StatusCode)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, f.max+1))
	switch {
	case err != nil || !json.Valid(answer) && int64(len(answer)) <= f.max:
		return nil, errors.New("the answer of the chain's server is cut off or not JSON")
	case int64(len(answer)) > f.max:
		return nil, fmt.Errorf("the answer of the chain's server is larger than %d bytes", f.max)
	}
	return answer, nil
}

// failure is an error in JSON-RPC's form.
func failure(id json.RawMessage, code int, message string) []byte {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	// an id that was read is JSON
	out, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id,
		"error": map[string]any{"code": code, "message": message}})
	return out
}
