package provider

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

	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
)

const (
	// firstCheck is how long after its start a program is looked at for the first time, unless its checks are closer.
	firstCheck = time.Second
	// maxHealthText bounds the reported text of a check's outcome, bytes.
	maxHealthText = 200
)

// checkHealth checks a running program until it has ended, and reports the results. It changes nothing about the
// program: the buyer decides about an unhealthy one.
//
//	starting ──ok──▶ healthy ◀──ok──┐
//	    │               │           │
//	    └──retries──────┴──────▶ unhealthy
func (x *executor) checkHealth(e *execution, rt runtime.Runtime) {
	c := e.work.Health
	s, h, _ := e.snapshot()
	if c == nil || h == nil {
		return
	}
	interval := time.Duration(c.IntervalMillis) * time.Millisecond
	grace := time.UnixMilli(int64(s.StartedMillis)).Add(time.Duration(c.StartMillis) * time.Millisecond)
	e.healthy(nodepb.Health_HEALTH_STARTING, "")
	failures := uint32(0)
	t := time.NewTimer(min(interval, firstCheck))
	defer t.Stop()
	for {
		select {
		case <-e.alive.Done():
			return
		case <-t.C:
		}
		t.Reset(interval)
		if e.paused() { // it cannot answer, and is not to blame
			continue
		}
		ctx, cancel := context.WithTimeout(e.alive, time.Duration(c.TimeoutMillis)*time.Millisecond)
		found, err := check(ctx, rt, *h, c)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v", time.Duration(c.TimeoutMillis)*time.Millisecond)
		}
		cancel()
		now, _, _ := e.snapshot()
		switch {
		case e.alive.Err() != nil || now.Paused:
		case err == nil:
			failures = 0
			e.healthy(nodepb.Health_HEALTH_HEALTHY, found)
		case now.Health == nodepb.Health_HEALTH_STARTING && time.Now().Before(grace):
			e.healthy(now.Health, err.Error())
		default:
			if failures = min(failures+1, c.Retries); failures < c.Retries {
				e.healthy(now.Health, err.Error())
			} else {
				e.healthy(nodepb.Health_HEALTH_UNHEALTHY, err.Error())
			}
		}
	}
}

// healthy records and reports the result of a check.
func (e *execution) healthy(h nodepb.Health, message string) {
	message = live.Clean(message)
	if len(message) > maxHealthText {
		message = strings.ToValidUTF8(message[:maxHealthText], "") + "…"
	}
	e.mu.Lock()
	same := e.state.Health == h && e.state.HealthMessage == message
	e.state.Health, e.state.HealthMessage = h, message
	e.mu.Unlock()
	if !same {
		e.changed()
	}
}

// check looks once.
func check(ctx context.Context, rt runtime.Runtime, h runtime.Handle, c *nodepb.HealthCheck) (string, error) {
	switch k := c.Check.(type) {
	case *nodepb.HealthCheck_Command:
		out := &tail{}
		code, err := rt.(runtime.Attacher).Attach(ctx, h, runtime.Process{Args: k.Command.Args, Stdout: out, Stderr: out})
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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", g.Port, g.Path), nil)
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
