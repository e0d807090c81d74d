package clitest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
)

// Network is a network with a currency of 6 decimals, on which units are simulated.
var Network = market.Genesis{Network: "cli", Chain: sign.Hash{1}, Symbol: "STAR", Decimals: 6, SlotMillis: 400,
	IntervalSlots: 150, Simulated: true}

// Answers are a fake peer's answers by the pattern of their route, such as "GET /v1/jobs/{id}". An *api.Error is a
// refusal, an http.HandlerFunc answers by itself, and anything else is the JSON of an answer.
type Answers map[string]any

// Answering is a home directory with a fake peer of fixed answers.
type Answering struct {
	*World
	mu    sync.Mutex
	asked []string
}

// NewAnswering makes a home directory on a network and the API of its peer. A request to a route without an answer is
// an error of the test.
func NewAnswering(t testing.TB, commands []func(*cli.App) *cobra.Command, g market.Genesis, all Answers) *Answering {
	t.Helper()
	p := &Answering{World: NewHome(t.TempDir(), commands)}
	p.Files = t.TempDir()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the peer was asked for %s %s", r.Method, r.URL)
		http.NotFound(w, r)
	})
	for pattern, v := range all {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if token := r.Header.Get("Authorization"); token != "Bearer token" {
				t.Errorf("%s with authorization %q", r.URL, token)
			}
			p.keep(r)
			answer(w, r, v)
		})
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	at := api.Endpoint{URL: s.URL, Token: "token"}
	for name, v := range map[string]any{config.FileGenesis: g, config.FileAPI: at} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(p.Home, name), b)
	}
	return p
}

func answer(w http.ResponseWriter, r *http.Request, v any) {
	switch v := v.(type) {
	case *api.Error:
		w.WriteHeader(v.Status)
		_ = json.NewEncoder(w).Encode(map[string]*api.Error{"error": v})
	case http.HandlerFunc:
		v(w, r)
	default:
		_ = json.NewEncoder(w).Encode(v)
	}
}

// keep remembers a request. Its body can be read again.
func (p *Answering) keep(r *http.Request) {
	line := r.Method + " " + r.URL.RequestURI()
	if b, err := io.ReadAll(r.Body); err == nil && len(b) > 0 {
		line += " " + strings.TrimSpace(string(b))
		r.Body = io.NopCloser(strings.NewReader(string(b)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, line)
}

// Asked returns the requests since the last call, each as method, path with query, and body.
func (p *Answering) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := slices.Clone(p.asked)
	p.asked = nil
	return asked
}

// Not checks that a command's output has no match of the patterns.
func (r Result) Not(t testing.TB, patterns ...string) Result {
	t.Helper()
	for _, p := range patterns {
		if found := matcher(p).FindString(r.Out + r.Err); found != "" {
			t.Errorf("%q is in\nstdout:\n%s\nstderr:\n%s", found, r.Out, r.Err)
		}
	}
	return r
}
