package server

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/starling-network/starling/p2p/p2ptest"
)

// Metrics is one number.
func (f *fake) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "starling_connected_peers 7\n") })
}

// Who is on this machine reads the numbers without a token; who comes by another name does not.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m, err := ListenMetrics("127.0.0.1:0", newFake(), p2ptest.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, m.Run)
	for host, want := range map[string]int{
		"": http.StatusOK, "localhost:9": http.StatusOK, "127.0.0.1": http.StatusOK, "[::1]:80": http.StatusOK,
		"evil.example:80": http.StatusForbidden, "192.0.2.1:80": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.Addr().String()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want || (want == http.StatusOK) != strings.Contains(string(b), "starling_connected_peers 7") {
			t.Errorf("host %q: %d, %v: %s", host, resp.StatusCode, err, b)
		}
	}
}
