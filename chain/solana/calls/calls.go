// Package calls measures the calls to a chain's RPC endpoints for Prometheus: their results and latency by method, and
// the time by the endpoints' clocks.
package calls

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gagliardetto/solana-go/rpc"
	"github.com/gagliardetto/solana-go/rpc/jsonrpc"
	"github.com/prometheus/client_golang/prometheus"
)

// The results of a call.
const (
	OK          = "ok"          // an answer
	Refused     = "refused"     // an error that is the endpoint's answer, such as a transaction that would fail
	Unwell      = "unwell"      // the endpoint cannot answer now
	HTTP        = "http"        // an HTTP status without an answer
	Unreachable = "unreachable" // no connection
	Timeout     = "timeout"     // no answer in time
	Malformed   = "malformed"   // no answer of a Solana RPC server
	Canceled    = "canceled"    // another endpoint answered first, or the peer stops
)

// fresh is the age from which on an endpoint's time is forgotten.
const fresh = 5 * time.Minute

// Meter counts the calls to the endpoints of one chain. It implements prometheus.Collector.
type Meter struct {
	total   *prometheus.CounterVec
	seconds *prometheus.HistogramVec

	mu    sync.Mutex
	clock map[int]reading // by endpoint
}

// reading is this machine's time less an endpoint's.
type reading struct {
	ahead time.Duration
	at    time.Time
}

// New returns a meter without calls.
func New() *Meter {
	return &Meter{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "starling_chain_calls_total",
			Help: "Calls to the chain's endpoints, by number in the configuration, from 0, method and result.",
		}, []string{"endpoint", "method", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "starling_chain_call_duration_seconds",
			Help:    "Time to the answer of the chain's endpoints, by method.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15},
		}, []string{"method"}),
		clock: map[int]reading{},
	}
}

// Describe implements prometheus.Collector.
func (m *Meter) Describe(ch chan<- *prometheus.Desc) {
	m.total.Describe(ch)
	m.seconds.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Meter) Collect(ch chan<- prometheus.Metric) {
	m.total.Collect(ch)
	m.seconds.Collect(ch)
}

// Ahead returns how far this machine's clock is ahead of the endpoints', the lower median; false if none of them has
// reported its time recently.
func (m *Meter) Ahead() (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []time.Duration
	for _, r := range m.clock {
		if time.Since(r.at) < fresh {
			all = append(all, r.ahead)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return all[(len(all)-1)/2], true
}

// IsUnwell reports whether an error code means that a server cannot answer now: behind the cluster, over its limits, or
// broken.
func IsUnwell(code int) bool {
	return code == -32005 || code == -32603 || code == -32016 || code == 429
}

// Client returns c with its calls counted by m under an endpoint.
func Client(m *Meter, endpoint int, c rpc.JSONRPCClient) rpc.JSONRPCClient {
	return client{c, m, strconv.Itoa(endpoint)}
}

type client struct {
	rpc.JSONRPCClient
	m        *Meter
	endpoint string
}

// CallForInto implements rpc.JSONRPCClient. The other methods of the interface are not used.
func (c client) CallForInto(ctx context.Context, out any, method string, params []any) error {
	start := time.Now()
	err := c.JSONRPCClient.CallForInto(ctx, out, method, params)
	result := resultOf(ctx, err)
	c.m.total.WithLabelValues(c.endpoint, method, result).Inc()
	if result != Canceled {
		c.m.seconds.WithLabelValues(method).Observe(time.Since(start).Seconds())
	}
	return err
}

// resultOf returns the result of a call that ended with an error, or nil.
func resultOf(ctx context.Context, err error) string {
	remote, isRemote := errors.AsType[*jsonrpc.RPCError](err)
	transport, isTransport := errors.AsType[*url.Error](err)
	_, isStatus := errors.AsType[*jsonrpc.HTTPError](err)
	switch {
	case err == nil:
		return OK
	case errors.Is(ctx.Err(), context.Canceled):
		return Canceled
	case ctx.Err() != nil, isTransport && transport.Timeout():
		return Timeout
	case isRemote && IsUnwell(remote.Code):
		return Unwell
	case isRemote:
		return Refused
	case isTransport:
		return Unreachable
	case isStatus:
		return HTTP
	}
	return Malformed
}

// Transport returns a transport over next from which m reads the time by an endpoint's clock.
func Transport(m *Meter, endpoint int, next http.RoundTripper) http.RoundTripper {
	return transport{m, endpoint, next}
}

type transport struct {
	m        *Meter
	endpoint int
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(q *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := t.next.RoundTrip(q)
	if err != nil {
		return resp, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		end := time.Now()
		middle := start.Add(end.Sub(start) / 2)
		t.m.mu.Lock()
		// Whole seconds are cut off of the header's.
		t.m.clock[t.endpoint] = reading{middle.Sub(date.Add(time.Second / 2)), end}
		t.m.mu.Unlock()
	}
	return resp, nil
}
