// Package cluster is the RPC endpoints of one Solana cluster. An answer is accepted if two of them agree. An endpoint
// of another cluster is not used. Endpoints appear in errors by host only, since their paths often hold secrets.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gagliardetto/solana-go/rpc"
	"github.com/gagliardetto/solana-go/rpc/jsonrpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/solana/calls"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

const (
	callTimeout  = 15 * time.Second
	maxResponse  = 16 << 20 // bytes of one RPC answer
	maxEndpoints = 8
)

// ErrConfig: the configuration cannot work. It wraps the reason.
var ErrConfig = errors.New("configuration")

// endpoint is one RPC server.
type endpoint struct {
	name   string // host, for people
	client *rpc.Client

	mu      sync.Mutex
	genesis sign.Hash // as reported; zero: not requested yet
}

// Cluster is the endpoints of one cluster. It is safe for concurrent use.
type Cluster struct {
	endpoints []*endpoint
	genesis   sign.Hash
	meter     *calls.Meter

	mu   sync.Mutex
	seen map[rpc.CommitmentType]market.Slot // newest slot that was believed, by level
}

// New returns the cluster with a genesis hash, zero for any, behind these URLs. Transport is optional; if nil, calls
// use HTTP. New opens no connection.
func New(urls []string, genesis sign.Hash, transport http.RoundTripper) (*Cluster, error) {
	if len(urls) == 0 || len(urls) > maxEndpoints {
		return nil, fmt.Errorf("solana: %w: %d RPC endpoints, want 1 to %d", ErrConfig, len(urls), maxEndpoints)
	}
	p := &Cluster{genesis: genesis, meter: calls.New(), seen: map[rpc.CommitmentType]market.Slot{}}
	for i, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("solana: %w: an RPC endpoint is not an http or https URL", ErrConfig)
		}
		by := transport
		if by == nil {
			by = calls.Transport(p.meter, i, http.DefaultTransport.(*http.Transport).Clone())
		}
		client := calls.Client(p.meter, i, jsonrpc.NewClientWithOpts(text, &jsonrpc.RPCClientOpts{
			HTTPClient: &http.Client{Transport: bounded{by}, Timeout: callTimeout}}))
		p.endpoints = append(p.endpoints, &endpoint{name: u.Host, client: rpc.NewWithCustomRPCClient(client)})
	}
	return p, nil
}

// Meter counts the cluster's calls.
func (c *Cluster) Meter() *calls.Meter { return c.meter }

// Need is the number of endpoints that must agree: two, or the only one.
func (c *Cluster) Need() int { return min(2, len(c.endpoints)) }

// bounded cuts answers off at maxResponse.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		resp.Body = limitedBody{io.LimitReader(resp.Body, maxResponse), resp.Body}
	}
	return resp, err
}

type limitedBody struct {
	io.Reader
	io.Closer
}

// checked makes sure once that the endpoint serves the pool's cluster.
func (e *endpoint) checked(ctx context.Context, want sign.Hash) error {
	if want.IsZero() {
		return nil
	}
	e.mu.Lock()
	have := e.genesis
	e.mu.Unlock()
	if have.IsZero() {
		h, err := e.client.GetGenesisHash(ctx)
		if err != nil {
			return e.fail(ctx, err)
		}
		have = sign.Hash(h)
		e.mu.Lock()
		e.genesis = have
		e.mu.Unlock()
	}
	if have != want {
		return fmt.Errorf("endpoint %s serves another cluster (genesis %s, want %s): %w",
			e.name, have.Short(), want.Short(), chain.ErrDisagree)
	}
	return nil
}

// Answered marks an error that is the endpoint's considered answer, as opposed to no answer.
type Answered struct{ Err error }

// Error returns the endpoint's error.
func (a Answered) Error() string { return a.Err.Error() }

// Unwrap returns the endpoint's error.
func (a Answered) Unwrap() error { return a.Err }

// Said is an endpoint's error message; a light client's endpoint is a stranger's peer.
func Said(err *jsonrpc.RPCError) string { return market.Clean(err.Message, maxSaid) }

// maxSaid bounds the quoted part of an endpoint's message, bytes.
const maxSaid = 1 << 10

// fail turns a client error into one of ours: no answer is ErrDown, without the URL.
func (e *endpoint) fail(ctx context.Context, err error) error {
	var remote *jsonrpc.RPCError
	var transport *url.Error
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	case errors.Is(err, rpc.ErrNotFound), errors.Is(err, chain.ErrMalformed):
		return Answered{err}
	case errors.As(err, &remote) && calls.IsUnwell(remote.Code):
		return fmt.Errorf("%s: %s: %w", e.name, Said(remote), chain.ErrDown)
	case errors.As(err, &remote):
		return Answered{fmt.Errorf("%s: RPC error %d: %s", e.name, remote.Code, Said(remote))}
	case errors.As(err, &transport):
		return fmt.Errorf("%s: %v: %w", e.name, transport.Err, chain.ErrDown)
	}
	var status *jsonrpc.HTTPError
	if errors.As(err, &status) {
		return fmt.Errorf("%s: HTTP status %d: %w", e.name, status.Code, chain.ErrDown)
	}
	return fmt.Errorf("%s: not an answer of a Solana RPC server: %w", e.name, chain.ErrDown)
}

// Ask requests an answer from the endpoints in turn until one answers. Its answer counts, an error too.
func Ask[T any](ctx context.Context, p *Cluster, question func(context.Context, *rpc.Client) (T, error)) (T, error) {
	var zero T
	var failures []error
	for _, e := range p.endpoints {
		if err := ctx.Err(); err != nil {
			return zero, err
		}
		err := e.checked(ctx, p.genesis)
		if err == nil {
			var out T
			if out, err = question(ctx, e.client); err == nil {
				return out, nil
			}
			err = e.fail(ctx, err)
			var said Answered
			if errors.As(err, &said) {
				return zero, said.Err
			}
		}
		failures = append(failures, err)
	}
	return zero, NoAnswer(ctx, failures)
}

// NoAnswer is the error when every endpoint failed.
func NoAnswer(ctx context.Context, failures []error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("no Solana RPC endpoint answers; check that it runs, or name another with --solana-rpc: %w",
		errors.Join(failures...))
}
