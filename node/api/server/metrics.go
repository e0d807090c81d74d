package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/api/route"
)

// Metered is a peer that can be measured.
type Metered interface {
	// Metrics answers with numbers in the text format of Prometheus.
	Metrics() http.Handler
}

// BindMetrics binds the route of metrics.
func BindMetrics(m Metered) []route.Bound {
	return []route.Bound{api.GetMetrics.Bind(func(w http.ResponseWriter, r *http.Request, _ api.None) error {
		m.Metrics().ServeHTTP(w, r)
		return nil
	})}
}

// MetricsServer answers /metrics, and nothing else, without a token to every user of this machine.
type MetricsServer struct {
	ln  net.Listener
	h   http.Handler
	log *slog.Logger
}

// ListenMetrics opens it on addr, which must be a loopback address. It serves nothing before Run.
func ListenMetrics(addr string, m Metered, log *slog.Logger) (*MetricsServer, error) {
	if err := loopback(addr); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	h, err := route.Mux(BindMetrics(m), guardMetrics)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("opening the port of metrics: %w", err)
	}
	return &MetricsServer{ln: ln, h: h, log: log}, nil
}

// Addr is where it listens.
func (m *MetricsServer) Addr() net.Addr { return m.ln.Addr() }

// Run serves until ctx ends.
func (m *MetricsServer) Run(ctx context.Context) error {
	if err := serveHTTP(ctx, m.ln, m.h, m.log); err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	return nil
}

// guardMetrics accepts only requests that name this machine. The route needs no token, so a web page could otherwise
// read it by DNS rebinding.
func guardMetrics(_ route.Operation, w http.ResponseWriter, r *http.Request, serve func(*http.Request) error) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		route.Fail(w, &api.Error{
			Status: http.StatusForbidden, Code: "not_local",
			Message: "host: want a loopback address or localhost",
		})
		return
	}
	_ = serve(r) // an answer that has begun ends where it fails
}
