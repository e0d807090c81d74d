package docker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
)

// fakeEngine answers as an engine with these properties.
func fakeEngine(t *testing.T, api string, info system.Info) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	socket := serveEngine(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("API-Version", api)
		switch {
		case strings.HasSuffix(req.URL.Path, "/info"):
			_ = json.NewEncoder(w).Encode(info)
		case strings.HasSuffix(req.URL.Path, "/version"):
			_ = json.NewEncoder(w).Encode(map[string]string{"Os": "linux", "Arch": "amd64"})
		case strings.HasSuffix(req.URL.Path, "/containers/json"):
			_, _ = w.Write([]byte("[]"))
		}
	})
	return Config{Peer: "p", Host: "unix://" + socket, Guard: self}
}

// serveEngine answers on a socket, whose path it returns.
func serveEngine(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fe")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); _ = os.RemoveAll(dir) })
	go func() { _ = http.Serve(l, answer) }()
	return socket
}

// An engine that cannot freeze a container at once is asked again; whatever else it says is an answer.
func TestFreezing(t *testing.T) {
	t.Parallel()
	const busy = "Cannot pause container c: OCI runtime pause failed: unable to freeze: unknown"
	for name, test := range map[string]struct {
		answers []string // one after the other, the last for good; "" is success
		ends    bool     // the execution does, while it is asked
		tries   int64
		says    string
	}{
		"at once":            {[]string{""}, false, 1, ""},
		"a busy processor":   {[]string{busy, busy, ""}, false, 3, ""},
		"paused by somebody": {[]string{busy, "container c is already paused"}, false, 2, ""},
		"not running":        {[]string{"container c is not running"}, false, 1, "is not running"},
		"ends meanwhile":     {[]string{busy}, true, 1, "unable to freeze"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int64
			x := newExecution("x", t.TempDir(), nil, nil, slog.New(slog.DiscardHandler))
			socket := serveEngine(t, func(w http.ResponseWriter, _ *http.Request) {
				n := min(int(tries.Add(1)), len(test.answers)) - 1
				if test.ends {
					close(x.over)
				}
				if test.answers[n] == "" {
					w.WriteHeader(http.StatusNoContent)
					return
				}
				w.WriteHeader(http.StatusInternalServerError)
				_ = json.NewEncoder(w).Encode(map[string]string{"message": test.answers[n]})
			})
			c, err := client.NewClientWithOpts(client.WithHost("unix://"+socket), client.WithVersion("1.41"))
			if err != nil {
				t.Fatal(err)
			}
			x.engine = &engine.Engine{Client: c}
			err = x.freeze(t.Context())
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) || tries.Load() != test.tries {
				t.Errorf("%v after %d tries", err, tries.Load())
			}
		})
	}
}

func TestEnginesThatWillNotDo(t *testing.T) {
	t.Parallel()
	if self, err := os.Executable(); err == nil {
		if _, err := guardBinary(self, slog.Default()); err != nil {
			t.Skip(err) // the race detector's binaries are dynamic
		}
	}
	good := func() system.Info {
		return system.Info{MemoryLimit: true, PidsLimit: true, CPUCfsQuota: true, DockerRootDir: "/var/lib/docker", SecurityOptions: []string{"name=seccomp,profile=default"}}
	}
	for name, test := range map[string]struct {
		api    string
		change func(*system.Info)
		says   string
	}{
		"good":            {"1.41", func(*system.Info) {}, ""},
		"newer":           {"1.99", func(i *system.Info) { i.SecurityOptions[0] = "name=seccomp,profile=builtin" }, ""},
		"too old":         {"1.40", func(*system.Info) {}, "20.10"},
		"no limits":       {"1.41", func(i *system.Info) { i.PidsLimit = false }, "cannot limit"},
		"seccomp off":     {"1.41", func(i *system.Info) { i.SecurityOptions = nil }, "seccomp"},
		"unconfined":      {"1.41", func(i *system.Info) { i.SecurityOptions[0] = "name=seccomp,profile=unconfined" }, "seccomp"},
		"strange mapping": {"1.41", func(i *system.Info) { i.SecurityOptions = append(i.SecurityOptions, "name=userns") }, "user mapping"},
	} {
		info := good()
		test.change(&info)
		r, err := New(t.Context(), fakeEngine(t, test.api, info))
		if test.says == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if err := r.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, runtime.ErrEngine) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := fakeEngine(t, "1.41", good())
	for name, test := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"not there":       {func(c *Config) { c.Host += "x" }, "installed and running"},
		"another machine": {func(c *Config) { c.Host = "tcp://192.0.2.1:2375" }, "this machine"},
		"no name":         {func(c *Config) { c.Peer = "" }, "not a name"},
		"no guard":        {func(c *Config) { c.Guard = "/none" }, "guard"},
		"dynamic guard":   {func(c *Config) { c.Guard = "/bin/sh" }, "CGO_ENABLED=0"},
	} {
		c := cfg
		test.change(&c)
		if _, err := New(t.Context(), c); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGPUWithoutToolkit(t *testing.T) {
	t.Parallel()
	r := &starter{engine: &engine.Engine{}}
	for text, s := range map[string]runtime.Spec{
		`could not select device driver "nvidia" with capabilities: [[gpu]]`: {GPUs: []string{"GPU-a"}},
		`OCI runtime create failed: nvidia-container-cli: device error`:      {GPUs: []string{"GPU-a"}},
	} {
		if err := r.createError(errors.New(text), s); !errors.Is(err, runtime.ErrDevice) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := r.createError(errors.New("nvidia"), runtime.Spec{}); errors.Is(err, runtime.ErrDevice) {
		t.Error(err)
	}
}

func TestStatsDoNotWaitForever(t *testing.T) {
	t.Parallel()
	e := newExecution("a", t.TempDir(), os.Stdin, &engine.Engine{}, slog.Default())
	e.owner = nil
	close(e.gone)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := e.stats(ctx); !errors.Is(err, runtime.ErrClosed) {
		t.Error(err)
	}
}
