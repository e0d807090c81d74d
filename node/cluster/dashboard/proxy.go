package dashboard

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/starling-network/starling/node/live"
)

// Proxy carries HTTP to the head's dashboard and adds the cluster's token. A client that reaches it may use the
// cluster. So it is for a loopback address, and refuses requests that a foreign web page makes a browser send:
//
//   - the Host must be this very address or localhost, so that an attacker's name that points here (DNS rebinding) is
//     refused,
//   - an Origin must be the same, and a request that a browser marks as coming from another site must be a user's
//     navigation to the first page.
type Proxy struct {
	port    string
	forward *httputil.ReverseProxy
}

// cookie is where Ray's dashboard keeps a token that its user typed.
const cookie = "ray-authentication-token"

// maxConns is how many connections to the head one proxy keeps open.
const maxConns = 48

// NewProxy returns the handler for an address that it is served on. failed receives the errors of requests that the
// head did not answer.
func NewProxy(at netip.AddrPort, cfg Config, failed func(error)) *Proxy {
	p := &Proxy{port: strconv.Itoa(int(at.Port()))}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "head"})
			r.Out.Host = r.In.Host // the dashboard makes links of it
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("X-Ray-Authorization")
			dropCookie(r.Out)
			r.Out.Header.Set("Authorization", "Bearer "+cfg.Token)
		},
		Transport:     cfg.transport(maxConns),
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the client is gone
			}
			failed(err)
			http.Error(w, "starling: the head's dashboard does not answer: "+live.Clean(err.Error()),
				http.StatusBadGateway)
		},
	}
	return p
}

// ServeHTTP carries a request on, or refuses it with 403.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if reason := p.refuse(r); reason != "" {
		http.Error(w, "starling: "+reason, http.StatusForbidden)
		return
	}
	p.forward.ServeHTTP(w, r)
}

// refuse returns the reason for which a request is not forwarded, or "".
func (p *Proxy) refuse(r *http.Request) string {
	if !p.here(r.Host) {
		return "unknown host: use 127.0.0.1 or localhost with the port"
	}
	if r.Method == http.MethodConnect || r.URL.Host != "" {
		return "requests to other hosts are refused"
	}
	for _, origin := range r.Header.Values("Origin") {
		if origin != "http://"+r.Host {
			return "request of another origin"
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return ""
	}
	if r.Method == http.MethodGet && r.URL.Path == "/" &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return "" // a link to the dashboard
	}
	return "request of another origin"
}

// here reports whether a Host is a loopback address, or localhost, with our port.
func (p *Proxy) here(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil || port != p.port {
		return false
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}

// dropCookie removes a dashboard token from a request, before the valid token is added.
func dropCookie(r *http.Request) {
	all := r.Cookies()
	r.Header.Del("Cookie")
	for _, c := range all {
		if c.Name != cookie {
			r.AddCookie(c)
		}
	}
}
