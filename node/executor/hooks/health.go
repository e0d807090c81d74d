package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
)

const (
	// firstCheck is how long after its start a program is checked for the first time, unless its checks are closer.
	firstCheck = time.Second
	// maxHealthText bounds the reported text of a check's outcome, bytes.
	maxHealthText = 200
)

// Health checks a running program until it has ended, and reports the results. It changes nothing about the program:
// the buyer decides about an unhealthy one.
//
//	starting ──ok──▶ healthy ◀──ok──┐
//	    │               │           │
//	    └──retries──────┴──────▶ unhealthy
type Health struct{}

var (
	_ executor.Poststart = Health{}
	_ executor.Recovery  = Health{}
)

// Poststart begins the checks.
func (h Health) Poststart(_ context.Context, e *executor.Execution) error {
	h.Recover(e)
	return nil
}

// Recover begins the checks anew.
func (h Health) Recover(e *executor.Execution) {
	_, handle, _ := e.Snapshot()
	if e.Work.Health == nil || handle == nil {
		return
	}
	report(e, nodepb.Health_HEALTH_STARTING, "")
	e.Go(func(ctx context.Context) { checkAll(ctx, e, *handle) })
}

// checkAll checks a program until ctx ends.
func checkAll(ctx context.Context, e *executor.Execution, h runtime.Handle) {
	c := e.Work.Health
	s, _, _ := e.Snapshot()
	now := judgement{retries: c.Retries, health: nodepb.Health_HEALTH_STARTING}
	now.grace = time.UnixMilli(int64(s.StartedMillis)).Add(time.Duration(c.StartMillis) * time.Millisecond)
	interval := time.Duration(c.IntervalMillis) * time.Millisecond
	timeout := time.Duration(c.TimeoutMillis) * time.Millisecond
	t := time.NewTimer(min(interval, firstCheck))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		t.Reset(interval)
		if e.Paused() { // it cannot answer, and is not to blame
			continue
		}
		cctx, cancel := context.WithTimeout(ctx, timeout)
		found, err := check(cctx, e.Runtime(), h, c)
		if errors.Is(cctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v", timeout)
		}
		cancel()
		if ctx.Err() != nil || e.Paused() {
			continue
		}
		if err != nil {
			found = err.Error()
		}
		now = now.after(err == nil, time.Now())
		report(e, now.health, found)
	}
}

// judgement is the health of a program by its checks so far.
type judgement struct {
	health   nodepb.Health
	failures uint32    // in a row, at most retries
	retries  uint32    // number of failures that make a program unhealthy
	grace    time.Time // failures of a program that is still starting do not count before
}

// after returns the judgement after one more check.
func (j judgement) after(ok bool, now time.Time) judgement {
	switch {
	case ok:
		j.failures, j.health = 0, nodepb.Health_HEALTH_HEALTHY
	case j.health == nodepb.Health_HEALTH_STARTING && now.Before(j.grace):
	default:
		if j.failures = min(j.failures+1, j.retries); j.failures >= j.retries {
			j.health = nodepb.Health_HEALTH_UNHEALTHY
		}
	}
	return j
}

// report records the result of a check and notifies the followers of a change.
func report(e *executor.Execution, h nodepb.Health, message string) {
	message = live.Clean(message)
	if len(message) > maxHealthText {
		message = strings.ToValidUTF8(message[:maxHealthText], "") + "…"
	}
	var same bool
	e.Update(func(s *nodepb.Execution) {
		same = s.Health == h && s.HealthMessage == message
		s.Health, s.HealthMessage = h, message
	})
	if !same {
		e.Changed()
	}
}

// check makes one check, and returns its finding.
func check(ctx context.Context, rt runtime.Runtime, h runtime.Handle, c *nodepb.HealthCheck) (string, error) {
	switch k := c.Check.(type) {
	case *nodepb.HealthCheck_Command:
		out := &tail{}
		p := runtime.Process{Args: k.Command.Args, Stdout: out, Stderr: out}
		code, err := rt.(runtime.Attacher).Attach(ctx, h, p)
		if err != nil {
			return "", err
		}
		if code != 0 {
			return "", fmt.Errorf("exit code %d: %s", code, out)
		}
		return "", nil
	case *nodepb.HealthCheck_TcpPort:
		conn, err := rt.(runtime.Dialer).Dial(ctx, h, uint16(k.TcpPort))
		if err != nil {
			return "", err
		}
		return "", conn.Close()
	case *nodepb.HealthCheck_Http:
		return checkHTTP(ctx, rt.(runtime.Dialer), h, k.Http)
	}
	return "", fmt.Errorf("unknown check %T", c.Check)
}

func checkHTTP(ctx context.Context, rt runtime.Dialer, h runtime.Handle, g *nodepb.HTTPGet) (string, error) {
	client := http.Client{
		Transport: &http.Transport{
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: 64 << 10,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return rt.Dial(ctx, h, uint16(g.Port))
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	url := fmt.Sprintf("http://127.0.0.1:%d%s", g.Port, g.Path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // for a polite end; the content does not matter
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return "", fmt.Errorf("GET %s answered %s", g.Path, resp.Status)
	}
	return resp.Status, nil
}

// tail keeps the last bytes written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(len(t.b)-maxHealthText, 0):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
