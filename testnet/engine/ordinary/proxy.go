//go:build linux

package ordinary

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// proxy is an HTTP proxy in the network of an engine, which has no other path to package registries. It is for this
// process's own images: it connects to any address.
type proxy struct {
	listener net.Listener
	server   *http.Server
}

// newProxy serves on a listener until it is closed.
func newProxy(l net.Listener) *proxy {
	p := &proxy{listener: l, server: &http.Server{Handler: http.HandlerFunc(pass), ReadHeaderTimeout: time.Minute}}
	go func() { _ = p.server.Serve(l) }()
	return p
}

// url is the proxy's address for the variable http_proxy.
func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) close() error { return p.server.Close() }

func pass(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodConnect {
		tunnel(w, req)
		return
	}
	out := req.Clone(req.Context())
	out.RequestURI = ""
	for name := range out.Header {
		if strings.HasPrefix(name, "Proxy-") {
			out.Header.Del(name)
		}
	}
	res, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body)
}

// tunnel connects a client with the requested server.
func tunnel(w http.ResponseWriter, req *http.Request) {
	far, err := (&net.Dialer{Timeout: time.Minute}).DialContext(req.Context(), "tcp", req.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer far.Close()
	w.WriteHeader(http.StatusOK)
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, func() { _ = errors.Join(near.Close(), far.Close()) })()
	go func() {
		defer cancel()
		_, _ = io.Copy(far, buffered)
	}()
	_, _ = io.Copy(near, far)
	cancel()
}
