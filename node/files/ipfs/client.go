package ipfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
)

const (
	// gateway is the default of IPFS_GATEWAY.
	gateway = "https://ipfs.io"

	maxBlock  = 2 << 20 // bytes; peers of IPFS exchange no larger ones
	maxHops   = 5
	tries     = 3
	patience  = time.Minute // for one block
	pause     = 200 * time.Millisecond
	maxHeader = 64 << 10
)

var (
	// ErrBlock means that a gateway sent other bytes than those of a CID.
	ErrBlock = errors.New("the gateway sent other bytes than the CID's")
	// ErrForm means that the blocks of a CID are no file or directory that can be read.
	ErrForm = errors.New("no file or directory of UnixFS that can be read")
	// ErrAbsent means that a gateway does not have a block, or a directory has no such name.
	ErrAbsent = errors.New("not found")
	// ErrLarge means that a file or directory exceeds the caller's limit.
	ErrLarge = errors.New("too large")
)

// Client reads blocks from a gateway.
type Client struct {
	Gateway string       // https://HOST or http://HOST, without a path; empty: https://ipfs.io
	HTTP    *http.Client // is optional; if nil, one with the system's authorities
}

// FromEnv makes the Client that a user has set up: IPFS_GATEWAY is the URL of its gateway, such as
// http://127.0.0.1:8080 of a node on this computer.
func FromEnv(env func(name string) string) (Client, error) {
	c := Client{Gateway: strings.TrimSuffix(env("IPFS_GATEWAY"), "/")}
	if c.Gateway == "" {
		return c, nil
	}
	u, err := url.Parse(c.Gateway)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Path != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return c, fmt.Errorf("IPFS_GATEWAY: got %.80q, want https://HOST or http://HOST:PORT", c.Gateway)
	}
	return c, nil
}

// URL is the address of a file's bytes at the gateway. These bytes are not checked against the CID by their reader.
func (c Client) URL(n Name) string { return cmp.Or(c.Gateway, gateway) + "/ipfs/" + n.location() }

// block requests a block, and checks it against its CID.
func (c Client) block(ctx context.Context, id cid.Cid) ([]byte, error) {
	for left := tries; ; {
		b, again, err := c.request(ctx, id)
		if left--; err == nil || !again || left == 0 || ctx.Err() != nil {
			return b, err
		}
		select {
		case <-time.After(pause << (tries - left)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// request requests a block once. again reports whether a later request may succeed.
func (c Client) request(ctx context.Context, id cid.Cid) (b []byte, again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	base := cmp.Or(c.Gateway, gateway)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/ipfs/"+id.String()+"?format=raw", nil)
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("User-Agent", "starling/1")
	req.Header.Set("Accept", "application/vnd.ipld.raw")
	res, err := c.client().Do(req)
	if err != nil {
		return nil, !errors.Is(err, errHop), fmt.Errorf("block %s: %w", id, err)
	}
	defer res.Body.Close()
	switch code := res.StatusCode; {
	case code == http.StatusTooManyRequests || code >= 500:
		return nil, true, fmt.Errorf("block %s: %w at %s: status %d", id, ErrAbsent, base, code)
	case code != http.StatusOK:
		return nil, false, fmt.Errorf("block %s: %w at %s: status %d", id, ErrAbsent, base, code)
	}
	if b, err = io.ReadAll(io.LimitReader(res.Body, maxBlock+1)); err != nil {
		return nil, true, fmt.Errorf("block %s: %w", id, err)
	}
	if len(b) > maxBlock {
		return nil, false, fmt.Errorf("block %s: %w: more than %d bytes", id, ErrBlock, maxBlock)
	}
	if sum, err := id.Prefix().Sum(b); err != nil || !sum.Equals(id) {
		return nil, false, fmt.Errorf("block %s: %w: got %s", id, ErrBlock, sum)
	}
	return b, false, nil
}

// transport keeps a connection for each block that is requested at a time.
var transport = sync.OnceValue(func() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.MaxResponseHeaderBytes = atOnce, maxHeader
	return t
})

var errHop = errors.New("the gateway redirects to another server")

// client returns an HTTP client that follows redirects to the gateway's own host, and to the hosts below it that
// gateways make of CIDs. Others could lead to servers of the user's network.
func (c Client) client() *http.Client {
	h := http.Client{Transport: transport()}
	if c.HTTP != nil {
		h = *c.HTTP
	}
	h.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		from, to := via[0].URL, req.URL
		own := to.Hostname() == from.Hostname() || strings.HasSuffix(to.Hostname(), "."+from.Hostname())
		if len(via) > maxHops || to.Scheme != from.Scheme || to.Port() != from.Port() || to.User != nil || !own {
			return errHop
		}
		return nil
	}
	return &h
}
