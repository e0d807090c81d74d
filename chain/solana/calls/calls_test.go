package calls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gagliardetto/solana-go/rpc/jsonrpc"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// server answers each method in its own way.
func server(t *testing.T, ahead time.Duration) string {
	t.Helper()
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(-ahead).UTC().Format(http.TimeFormat))
		switch r.URL.Path {
		case "/ok":
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":0,"result":7}`)
		case "/refused":
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":0,"error":{"code":-32002,"message":"it would fail"}}`)
		case "/unwell":
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":0,"error":{"code":-32005,"message":"behind"}}`)
		case "/http":
			w.WriteHeader(http.StatusBadGateway)
		case "/malformed":
			fmt.Fprint(w, `<html>`)
		case "/silent":
			<-over
		}
	}))
	t.Cleanup(func() { close(over); s.Close() })
	return s.URL
}

func call(ctx context.Context, m *Meter, endpoint int, url string, timeout time.Duration) error {
	c := Client(m, endpoint, jsonrpc.NewClientWithOpts(url, &jsonrpc.RPCClientOpts{HTTPClient: &http.Client{
		Transport: Transport(m, endpoint, http.DefaultTransport.(*http.Transport).Clone()), Timeout: timeout,
	}}))
	var out int
	return c.CallForInto(ctx, &out, "getSlot", nil)
}

// Each way in which a call ends is counted as itself, and only answers and failures have a latency.
func TestResults(t *testing.T) {
	t.Parallel()
	url := server(t, 0)
	m := New()
	for _, path := range []string{OK, OK, Refused, Unwell, HTTP, Malformed} {
		if err := call(t.Context(), m, 0, url+"/"+path, time.Minute); (err == nil) != (path == OK) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := call(t.Context(), m, 1, "http://127.0.0.1:1", time.Minute); err == nil {
		t.Error("nobody listens, and a call succeeds")
	}
	if err := call(t.Context(), m, 1, url+"/silent", time.Millisecond); err == nil {
		t.Error("a call without an answer succeeds")
	}
	late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := call(late, m, 1, url+"/silent", time.Minute); err == nil {
		t.Error("a call without an answer succeeds")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := call(ended, m, 1, url+"/silent", time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	const want = `
# HELP starling_chain_calls_total Calls to the chain's endpoints, by number in the configuration, from 0, method and result.
# TYPE starling_chain_calls_total counter
starling_chain_calls_total{endpoint="0",method="getSlot",result="http"} 1
starling_chain_calls_total{endpoint="0",method="getSlot",result="malformed"} 1
starling_chain_calls_total{endpoint="0",method="getSlot",result="ok"} 2
starling_chain_calls_total{endpoint="0",method="getSlot",result="refused"} 1
starling_chain_calls_total{endpoint="0",method="getSlot",result="unwell"} 1
starling_chain_calls_total{endpoint="1",method="getSlot",result="canceled"} 1
starling_chain_calls_total{endpoint="1",method="getSlot",result="timeout"} 2
starling_chain_calls_total{endpoint="1",method="getSlot",result="unreachable"} 1
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), "starling_chain_calls_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}

// The endpoints' answers show how far this machine's clock is off; of two endpoints the lower counts, and none is known
// before the first answer.
func TestAhead(t *testing.T) {
	t.Parallel()
	m := New()
	if d, ok := m.Ahead(); ok {
		t.Errorf("ahead by %v of nobody", d)
	}
	for i, ahead := range []time.Duration{3 * time.Hour, time.Hour, 5 * time.Hour} {
		if err := call(t.Context(), m, i, server(t, ahead)+"/ok", time.Minute); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{3 * time.Hour, time.Hour, 3 * time.Hour}[i]
		// However long the answer takes, the middle of the call is at most half of it off.
		if d, ok := m.Ahead(); !ok || (d-want).Abs() > 30*time.Minute {
			t.Errorf("%d endpoints: ahead by %v, %t; want %v", i+1, d, ok, want)
		}
	}
}
