// Package dashboard is a client of the HTTP port of a Ray cluster's head. It has a proxy by which a browser and `ray
// job submit` use the cluster without its token, and a query for Ray's pending jobs.
//
//	GET /api/jobs/        a list of jobs, each with "status": PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED
//
// Every request carries "Authorization: Bearer <token>" (docs.ray.io, "Ray Jobs REST API"; Ray 2.55). The head runs on
// a provider's machine and may be hostile: answers are bounded and checked, redirections are not followed, and nothing
// is decompressed.
package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/starling-network/starling/node/live"
)

// maxAnswer bounds the part of an answer that is read, bytes.
const maxAnswer = 16 << 20

// ErrAnswer means that the head answered something that is not a list of Ray's jobs.
var ErrAnswer = errors.New("the answer is not one of ray's jobs api")

// Config is the configuration of a client of the head's port.
type Config struct {
	// Dial connects to the port.
	Dial func(ctx context.Context) (net.Conn, error)
	// Token is the cluster's.
	Token string
}

func (c Config) transport(conns int) *http.Transport {
	return &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx) },
		DisableCompression:  true,
		MaxConnsPerHost:     conns,
		MaxIdleConnsPerHost: conns,
		IdleConnTimeout:     time.Minute,
	}
}

// Busy reports whether a job of the cluster runs or waits, scripts that joined by themselves among them. Errors:
// ErrAnswer, and those of Dial.
func Busy(ctx context.Context, cfg Config) (bool, error) {
	t := cfg.transport(1)
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://head/api/jobs/", nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+cfg.Token)
	resp, err := t.RoundTrip(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%w: status %d", ErrAnswer, resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return false, err
	}
	if len(b) > maxAnswer {
		return false, fmt.Errorf("%w: longer than %d MiB", ErrAnswer, maxAnswer>>20)
	}
	return readBusy(b)
}

// readBusy reports whether a job has not ended by a list of jobs in JSON.
func readBusy(b []byte) (busy bool, err error) {
	var jobs []struct {
		Status string `json:"status"`
	}
	if err := json.Unmarshal(b, &jobs); err != nil {
		return false, fmt.Errorf("%w: %s", ErrAnswer, live.Clean(err.Error()))
	}
	for _, j := range jobs {
		switch j.Status {
		case "PENDING", "RUNNING":
			busy = true
		case "STOPPED", "SUCCEEDED", "FAILED":
		default:
			return false, fmt.Errorf("%w: a job is %q", ErrAnswer, live.Clean(j.Status))
		}
	}
	return busy, nil
}
