package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/p2p/closed"
)

const (
	maxRedirects = 5
	maxHeader    = 256 << 10
	// spare bounds the bytes beside the layers: manifests, the configuration, tokens, bodies of errors and redirects.
	spare = 16 << 20

	dialPatience   = 15 * time.Second
	answerPatience = 30 * time.Second
)

var (
	errPlain     = errors.New("not HTTPS")
	errRedirects = errors.New("too many redirects")
	errTooMuch   = errors.New("more bytes came than were announced")
)

// guarded is the only transport of this package. It refuses all requests that a stranger may not make.
type guarded struct {
	inner *http.Transport
	plain map[string]bool // hosts of URLs that may be read over plain HTTP
	left  atomic.Int64    // bytes that may still come
}

// newGuarded returns the transport for one image; local means that its registry is named by the operator.
func (c *Client) newGuarded(local bool) *guarded {
	g := &guarded{}
	dials := map[string]bool{}
	if local {
		g.plain, dials = c.registries, c.dials
	}
	g.left.Store(spare)
	g.inner = &http.Transport{ // no Proxy: one would dial for it
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			d := net.Dialer{Timeout: dialPatience, Control: closed.Control}
			if dials[address] {
				d.Control = nil
			}
			return d.DialContext(ctx, network, address)
		},
		TLSHandshakeTimeout:    dialPatience,
		ResponseHeaderTimeout:  answerPatience,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true, // received bytes are counted
		ForceAttemptHTTP2:      true,
	}
	return g
}

// RoundTrip refuses plain HTTP and long chains of redirects, and counts received bytes.
func (g *guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	if u := req.URL; u.Scheme != "https" && (u.Scheme != "http" || !g.plain[u.Host]) {
		return nil, fmt.Errorf("%w: %.200s", errPlain, u.Redacted())
	}
	hops := 0
	for r := req.Response; r != nil && r.Request != nil; r = r.Request.Response {
		if hops++; hops > maxRedirects {
			return nil, errRedirects
		}
	}
	res, err := g.inner.RoundTrip(req)
	if err == nil {
		res.Body = &counted{res.Body, &g.left}
	}
	return res, err
}

// counted is a body with counted bytes.
type counted struct {
	io.ReadCloser
	left *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.left.Add(-int64(n)) < 0 {
		return 0, errTooMuch
	}
	return n, err
}
