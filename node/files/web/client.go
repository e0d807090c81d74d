package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/starling-network/starling/p2p/closed"
)

const (
	maxRedirects = 5
	maxHeader    = 64 << 10

	dialPatience   = 15 * time.Second
	answerPatience = 30 * time.Second
)

var (
	errForm      = errors.New("a URL that is not read")
	errRedirects = errors.New("too many redirects")
	errStalled   = errors.New("the server is too slow")
)

// Config is the configuration of a Client.
type Config struct {
	// Hosts are those of the operator's own network, HOST or HOST:PORT. They may have private addresses.
	Hosts []string
	// Roots are the authorities of certificates; if nil, the system's.
	Roots *x509.CertPool
}

// Client reads files of the web.
type Client struct {
	hosts map[string]bool // the operator's, as they are dialled: host:port
	roots *x509.CertPool
	pace  pace
	desk  desk
}

// pace is the patience of a client.
type pace struct {
	open  time.Duration // until an answer, redirects included
	stall time.Duration // for each leastBytes
	pause time.Duration // after the first break; it doubles
}

// New makes a Client.
func New(cfg Config) (*Client, error) {
	c := &Client{
		hosts: map[string]bool{}, roots: cfg.Roots,
		pace: pace{open: time.Minute, stall: 30 * time.Second, pause: 100 * time.Millisecond},
	}
	for _, h := range cfg.Hosts {
		u, err := url.Parse(Scheme + h)
		if err != nil || u.Host != h || check(u) != nil || strings.ContainsAny(h, "@/?# ") {
			return nil, fmt.Errorf("host %.80q: want HOST or HOST:PORT", h)
		}
		c.hosts[dialled(u)] = true
	}
	return c, nil
}

// dialled is the host of a URL as the transport dials it.
func dialled(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// transport returns the only transport of a download; local means that its URL is on the operator's hosts.
func (c *Client) transport(local bool) *http.Transport {
	return &http.Transport{ // no Proxy: one would dial for it
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			d := net.Dialer{Timeout: dialPatience, Control: closed.Control}
			if local && c.hosts[strings.ToLower(address)] {
				d.Control = nil
			}
			return d.DialContext(ctx, network, address)
		},
		TLSClientConfig:        &tls.Config{RootCAs: c.roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialPatience,
		ResponseHeaderTimeout:  answerPatience,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}
}

// client makes the HTTP client of a download.
func (c *Client) client(local bool) *http.Client {
	return &http.Client{
		Transport: c.transport(local),
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return errRedirects
			}
			if err := check(withoutFragment(req.URL)); err != nil {
				return fmt.Errorf("%w: %w", errForm, err)
			}
			req.Header.Del("Referer")
			return nil
		},
	}
}

// withoutFragment is a redirect's URL without the fragment, which is not sent.
func withoutFragment(u *url.URL) *url.URL {
	out := *u
	out.Fragment = ""
	return &out
}
