// Package objects reads and writes objects of S3-compatible storage for a buyer's client.
//
//	List, Stat ──▶ size, SHA-256 of the object's metadata ──▶ URL: signed, for providers
//	                                                     └──▶ Open, Pack: the bytes, through this computer
//	PutFolder: files ──▶ objects, each with the checksum that the server computed
//
// The user's keys stay here: a signed URL opens one object for a time, and contains no secret key. Peers and providers
// do not import this package.
//
// The server is the user's choice, and nevertheless bounded: its redirects are not followed, its answers but objects
// are at most maxAnswer long, and listings end at a number of objects. An object is as long as its listing has it, or
// reading fails.
package objects

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/starling-network/starling/node/files/s3"
)

const (
	amazon = "https://s3.amazonaws.com"
	// maxAnswer bounds an answer of the server that is no object; a page of a listing has 1000 keys of 1 KiB, encoded.
	maxAnswer = 8 << 20
	maxHeader = 64 << 10
	tries     = 4
	// atOnce is the number of objects that are transferred at a time.
	atOnce = 8
)

var (
	// ErrSettings means that the user's settings give no access to S3.
	ErrSettings = errors.New("settings for S3")
	// ErrAccess means that the server refuses the user's keys.
	ErrAccess = errors.New("access denied by the S3 server")
	// ErrAbsent means that an object or a bucket is not there.
	ErrAbsent = errors.New("not found on the S3 server")
	// ErrChanged means that an object is not the one that was listed.
	ErrChanged = errors.New("changed, or the S3 server is faulty")
)

// Client sends requests to one S3 server.
type Client struct {
	core minio.Core
	at   string // the server
}

// FromEnv is the client that a user has set up, by the variables of Amazon's tools: AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else the profile AWS_PROFILE of their files; AWS_REGION,
// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, and AWS_CA_BUNDLE. It opens no connection.
func FromEnv(env func(name string) string) (*Client, error) {
	at := strings.TrimSuffix(cmp.Or(env("AWS_ENDPOINT_URL_S3"), env("AWS_ENDPOINT_URL"), amazon), "/")
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Path != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: AWS_ENDPOINT_URL: got %.80q, want https://HOST or https://HOST:PORT", ErrSettings,
			at)
	}
	keys, err := keysOf(env)
	if err != nil {
		return nil, err
	}
	secure := u.Scheme == "https"
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSettings, err)
	}
	transport.MaxResponseHeaderBytes = maxHeader
	if bundle := env("AWS_CA_BUNDLE"); bundle != "" && secure {
		pem, err := os.ReadFile(bundle)
		roots := x509.NewCertPool()
		if err == nil && !roots.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s: no certificate in it", bundle)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: AWS_CA_BUNDLE: %w", ErrSettings, err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	c, err := minio.New(u.Host, &minio.Options{
		Creds: keys, Secure: secure, Transport: bounded{transport}, MaxRetries: tries, TrailingHeaders: true,
		Region: cmp.Or(env("AWS_REGION"), env("AWS_DEFAULT_REGION")),
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSettings, err)
	}
	return &Client{core: minio.Core{Client: c}, at: u.Scheme + "://" + u.Host}, nil
}

// keysOf finds the user's keys.
func keysOf(env func(string) string) (*credentials.Credentials, error) {
	id, secret := env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY")
	if (id == "") != (secret == "") {
		return nil, fmt.Errorf("%w: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: got one of them, want both",
			ErrSettings)
	}
	keys := credentials.NewStaticV4(id, secret, env("AWS_SESSION_TOKEN"))
	if id == "" {
		keys = credentials.NewFileAWSCredentials(env("AWS_SHARED_CREDENTIALS_FILE"), env("AWS_PROFILE"))
	}
	v, err := keys.GetWithContext(nil)
	if err != nil || v.AccessKeyID == "" {
		return nil, fmt.Errorf("%w: no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a "+
			"profile of ~/.aws/credentials; an object that all may read has an https:// URL, which needs none",
			ErrSettings)
	}
	return keys, nil
}

// Ready returns an error unless the bucket of a name is there and the user may list it.
func (c *Client) Ready(ctx context.Context, n s3.Name) error {
	there, err := c.core.BucketExists(ctx, n.Bucket)
	if err == nil && !there {
		err = ErrAbsent
	}
	return c.failed(s3.Name{Bucket: n.Bucket}, err)
}

// failed makes an error of the library one of this package.
func (c *Client) failed(n s3.Name, err error) error {
	if err == nil {
		return nil
	}
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		switch {
		case answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized:
			err = fmt.Errorf("%w: %.200s", ErrAccess, cmp.Or(answer.Message, answer.Code))
		case answer.StatusCode == http.StatusNotFound:
			err = ErrAbsent
		case answer.StatusCode == http.StatusPreconditionFailed:
			err = ErrChanged
		case answer.StatusCode/100 == 3:
			err = fmt.Errorf("the server redirects, which is not followed: set AWS_REGION and AWS_ENDPOINT_URL to "+
				"those of the bucket (status %d)", answer.StatusCode)
		default:
			err = fmt.Errorf("the server answered %.40s: %.200s", answer.Code, answer.Message)
		}
	}
	return fmt.Errorf("%s at %s: %w", n, c.at, err)
}

// pages counts the requests of one listing.
type pages struct{ left atomic.Int64 }

type pagesKey struct{}

var errPages = errors.New("the server's listing does not end")

// bounded bounds the answers of a server.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	if p, ok := req.Context().Value(pagesKey{}).(*pages); ok && p.left.Add(-1) < 0 {
		return nil, errPages
	}
	res, err := b.next.RoundTrip(req)
	if err != nil || data(req, res) {
		return res, err
	}
	res.Body = short{io.LimitReader(res.Body, maxAnswer), res.Body}
	return res, nil
}

// data reports whether an answer is the content of an object.
func data(req *http.Request, res *http.Response) bool {
	q := req.URL.Query()
	return req.Method == http.MethodGet && res.StatusCode/100 == 2 && !q.Has("list-type") && !q.Has("location")
}

type short struct {
	io.Reader
	io.Closer
}
