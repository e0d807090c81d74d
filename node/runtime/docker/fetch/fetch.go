package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/node/runtime"
)

const (
	// maxLayers is how many an engine can stack.
	maxLayers = runtime.MaxImageParts - 2
	// maxCause bounds the part of a stranger's text in a log, bytes.
	maxCause = 1 << 10
)

// retries is the backoff for requests with a temporary error or without an answer.
var retries = transport.Backoff{Duration: 300 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 3}

// Client reads images from registries.
type Client struct {
	registries map[string]bool // of the operator, as image names have them
	dials      map[string]bool // the same, as they are dialled: host:port
}

// New makes a Client. registries are those of the operator's own network, HOST or HOST:PORT as in the names of images.
func New(registries []string) (*Client, error) {
	c := &Client{registries: map[string]bool{}, dials: map[string]bool{}}
	for _, r := range registries {
		reg, err := name.NewRegistry(r, name.StrictValidation)
		if err != nil || strings.ContainsAny(r, "/@?# ") {
			return nil, fmt.Errorf("registry %.80q: want HOST or HOST:PORT, as in the names of images", r)
		}
		host := reg.RegistryStr()
		c.registries[host] = true
		if _, _, err := net.SplitHostPort(host); err == nil {
			c.dials[host] = true
			continue
		}
		host = strings.Trim(host, "[]")
		c.dials[net.JoinHostPort(host, "443")], c.dials[net.JoinHostPort(host, "80")] = true, true
	}
	return c, nil
}

// Image is an image with verified manifest and configuration, without layers.
type Image struct {
	Manifest v1.Hash // of this machine's platform, if the name refers to several platforms
	Config   v1.Hash
	JSON     []byte // the configuration
	Bytes    int64  // layers, packed

	media    string // of the manifest
	manifest []byte
	layers   []layer
	source   source
}

// layer is one of an image, the lowest first.
type layer struct {
	v1.Descriptor
	unpacked v1.Hash
}

// Open reads a registry's description of an image, which is named by its digest. Platform is as in "linux/amd64";
// layers may have limit bytes in all. Its errors are a *runtime.Failure of ErrBadImage, ErrCredentials or ErrRegistry,
// or ctx's. Close it.
func (c *Client) Open(
	ctx context.Context, ref string, auth *runtime.RegistryAuth, platform string, limit int64,
) (*Image, error) {
	named, g, err := c.named(ref)
	if err != nil {
		return nil, err
	}
	d, ok := named.(name.Digest)
	if !ok {
		return nil, bad("malformed name", errors.New("no digest"))
	}
	i, err := g.open(ctx, d, auth, platform, limit)
	if err != nil {
		g.inner.CloseIdleConnections()
		return nil, clean(ctx, err, auth)
	}
	return i, nil
}

// named reads the name of an image, and returns the way to its registry. The error is a *runtime.Failure.
func (c *Client) named(image string) (name.Reference, *guarded, error) {
	if images.IsPushed(image) {
		advice := images.Pushed + " is no registry: its images are named with a digest and come with the job"
		return nil, nil, bad(advice, nil)
	}
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, nil, bad("malformed name", err)
	}
	local := c.registries[ref.Context().RegistryStr()]
	if local {
		if ref, err = name.ParseReference(image, name.Insecure); err != nil {
			return nil, nil, bad("malformed name", err)
		}
	}
	return ref, c.newGuarded(local), nil
}

func (g *guarded) open(
	ctx context.Context, d name.Digest, auth *runtime.RegistryAuth, platform string, limit int64,
) (*Image, error) {
	wanted, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, err
	}
	tr, err := g.transport(ctx, d, auth)
	if err != nil {
		return nil, err
	}
	desc, err := remote.Get(d, remote.WithContext(ctx), remote.WithTransport(tr), remote.WithPlatform(*wanted))
	if err != nil {
		return nil, sorted(err, other)
	}
	found, err := desc.Image()
	if err != nil {
		return nil, sorted(err, func(err error) error {
			return bad("the registry has no image for "+platform+" under this digest", err)
		})
	}
	i := &Image{source: &repository{d.Context(), g, &http.Client{Transport: tr}}}
	if i.manifest, err = found.RawManifest(); err != nil {
		return nil, sorted(err, other)
	}
	if i.Manifest, err = found.Digest(); err != nil {
		return nil, sorted(err, other)
	}
	media, err := found.MediaType()
	if err != nil {
		return nil, sorted(err, other)
	}
	m, err := found.Manifest()
	if err != nil {
		return nil, sorted(err, other)
	}
	if err := checkManifest(m, limit); err != nil {
		return nil, err
	}
	i.describe(Manifest{m.Config, m.Layers, string(media)})
	if i.JSON, err = found.RawConfigFile(); err != nil {
		return nil, sorted(err, other)
	}
	return i, i.pair()
}

// transport opens the repository of an image.
func (g *guarded) transport(
	ctx context.Context, ref name.Reference, auth *runtime.RegistryAuth,
) (http.RoundTripper, error) {
	who := authn.Anonymous
	if auth != nil {
		who = authn.FromConfig(authn.AuthConfig{Username: auth.Username, Password: auth.Password})
	}
	again := transport.NewRetry(g, transport.WithRetryBackoff(retries), transport.WithRetryPredicate(passing),
		transport.WithRetryStatusCodes(http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
			http.StatusGatewayTimeout))
	tr, err := transport.NewWithContext(ctx, ref.Context().Registry, who, again,
		[]string{ref.Scope(transport.PullScope)})
	if err != nil {
		return nil, sorted(err, unreachable)
	}
	return tr, nil
}

// checkManifest holds a manifest to the limits, before any file in it is requested.
func checkManifest(m *v1.Manifest, limit int64) error {
	if len(m.Layers) > maxLayers {
		return bad(fmt.Sprintf("layers: got %d, want at most %d", len(m.Layers), maxLayers), nil)
	}
	var sum int64
	for _, l := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		switch {
		case len(l.URLs) > 0 || !l.MediaType.IsDistributable():
			return bad("layers outside the registry", nil)
		case l.Digest.Algorithm != "sha256" || l.Size < 0:
			return bad("malformed manifest", nil)
		case l.Size > limit-sum:
			return bad(fmt.Sprintf("layers: over %d MiB", limit>>20), nil)
		}
		sum += l.Size
	}
	if m.Config.Size > spare {
		return bad("configuration: too large", nil)
	}
	return nil
}

// describe takes the files of a checked manifest.
func (i *Image) describe(m Manifest) {
	i.media, i.Config = m.Media, m.Config.Digest
	for _, l := range m.Layers {
		i.layers = append(i.layers, layer{Descriptor: l})
		i.Bytes += l.Size
	}
}

// pair reads the digest of each unpacked layer from the configuration.
func (i *Image) pair() error {
	var c struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(i.JSON, &c); err != nil || len(c.RootFS.DiffIDs) != len(i.layers) {
		return bad("the configuration does not match the layers", err)
	}
	for n, text := range c.RootFS.DiffIDs {
		var err error
		if i.layers[n].unpacked, err = v1.NewHash(text); err != nil {
			return bad("the configuration does not match the layers", err)
		}
	}
	return nil
}

// Close ends its connections.
func (i *Image) Close() { i.source.close() }

// passing reports whether a failed request may soon succeed. A request that this package refused does not.
func passing(err error) bool {
	var n net.Error
	var answer *transport.Error
	if errors.As(err, &answer) {
		return answer.Temporary()
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.As(err, &n) && n.Timeout() && !errors.Is(err, context.DeadlineExceeded)
}

func bad(advice string, cause error) error {
	return &runtime.Failure{Class: runtime.ErrBadImage, Advice: advice, Cause: cause}
}

// unreachable is the same error for every address: the author of an image name must not learn about this machine's
// network.
func unreachable(err error) error {
	return &runtime.Failure{Class: runtime.ErrRegistry, Cause: err,
		Advice: "check the image's name; registries must be on the internet, with HTTPS, and so must all that they " +
			"refer to"}
}

func other(err error) error {
	return bad("the registry did not send an image with this digest", err)
}

// sorted finds the class of an error; rest handles one without a sign of a class.
func sorted(err error, rest func(error) error) error {
	var f *runtime.Failure
	var answer *transport.Error
	var u *url.Error
	var n net.Error
	switch {
	case errors.As(err, &f):
		return err
	case errors.As(err, &answer):
		switch answer.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return &runtime.Failure{Class: runtime.ErrCredentials, Cause: err,
				Advice: "give the job registryAuth that may read the image, and check the image's name"}
		case http.StatusNotFound:
			return bad("not found in the registry", err)
		case http.StatusTooManyRequests:
			return &runtime.Failure{Class: runtime.ErrRegistry, Cause: err,
				Advice: "rate limit of the registry: give the job registryAuth, or try later"}
		}
		return unreachable(err)
	case errors.Is(err, errTooMuch), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &u), errors.As(err, &n):
		return unreachable(err)
	}
	return rest(err)
}

// clean truncates a stranger's text in an error, and removes the password, should a registry repeat it.
func clean(ctx context.Context, err error, auth *runtime.RegistryAuth) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var f *runtime.Failure
	if !errors.As(err, &f) || f.Cause == nil {
		return err
	}
	text := f.Cause.Error()
	if auth != nil && auth.Password != "" {
		text = strings.ReplaceAll(text, auth.Password, "[password]")
	}
	if len(text) > maxCause {
		text = text[:maxCause] + "…"
	}
	return &runtime.Failure{Class: f.Class, Advice: f.Advice, Cause: errors.New(strings.ToValidUTF8(text, "?"))}
}
