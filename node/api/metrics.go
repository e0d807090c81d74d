package api

import (
	"net"
	"net/http"
)

// Metered is a peer that can be measured.
type Metered interface {
	// Metrics answers with numbers in the text format of Prometheus.
	Metrics() http.Handler
}

// local lets in requests that name this machine: a page that a browser shows may have its own name lead here, and has no token to need.
func local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			fail(w, &Error{Status: http.StatusForbidden, Code: "not_local", Message: "metrics are asked for by a loopback address or localhost"})
			return
		}
		h.ServeHTTP(w, r)
	})
}
