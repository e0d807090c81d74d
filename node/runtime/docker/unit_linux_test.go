package docker

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"github.com/starling-network/starling/node/runtime"
)

func FuzzDecodeState(f *testing.F) {
	f.Add([]byte(`{"id":"a","container":"c","guard":12,"token":"t","started":"2020-01-02T03:04:05Z","wall_time":0}`))
	f.Add([]byte(`{"id":"a","guard":0}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeState(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Skip("a time that JSON cannot write")
		}
		w, err := decodeState(again)
		if err != nil || !w.Started.Equal(s.Started) || w.ID != s.ID || w.Guard != s.Guard {
			t.Errorf("%+v, then %+v, %v", s, w, err)
		}
	})
}

func TestCommand(t *testing.T) {
	t.Parallel()
	img := imageConfig{entrypoint: []string{"/e"}, cmd: []string{"c"}, env: []string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=all"}, workDir: "/w"}
	for name, test := range map[string]struct {
		spec runtime.Spec
		argv []string
		env  []string
		dir  string
	}{
		"as the image says": {runtime.Spec{}, []string{"/e", "c"}, []string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=void"}, "/w"},
		"arguments":         {runtime.Spec{Args: []string{"x", "y"}}, []string{"/e", "x", "y"}, []string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=void"}, "/w"},
		"entrypoint":        {runtime.Spec{Entrypoint: []string{"/n"}, WorkDir: "/v"}, []string{"/n"}, []string{"A=1", "B=2", "NVIDIA_VISIBLE_DEVICES=void"}, "/v"},
		"environment": {runtime.Spec{Env: map[string]string{"B": "3"}, SecretEnv: map[string]string{"C": "4"}, GPUs: []string{"g", "h"}}, []string{"/e", "c"},
			[]string{"A=1", "B=3", "C=4", "NVIDIA_VISIBLE_DEVICES=g,h"}, "/w"},
	} {
		c, err := command(test.spec, img)
		if err != nil || !slices.Equal(c.Argv, test.argv) || !slices.Equal(c.Env, test.env) || c.Dir != test.dir {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if _, err := command(runtime.Spec{}, imageConfig{}); !errors.Is(err, runtime.ErrBadImage) {
		t.Errorf("no program: %v", err)
	}
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("a", 64)
	for ref, want := range map[string]string{
		"alpine" + digest:                "docker.io/library/alpine" + digest,
		"alpine:3" + digest:              "docker.io/library/alpine" + digest,
		"ghcr.io/acme/train:v1" + digest: "ghcr.io/acme/train" + digest,
		"127.0.0.1:5000/a/b" + digest:    "127.0.0.1:5000/a/b" + digest,
		"alpine":                         "",
		"alpine@sha256:short":            "",
		"Alpine" + digest:                "",
		"ghcr.io/acme/../x" + digest:     "",
	} {
		if got, err := canonical(ref); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", ref, got, err)
		}
	}
}

func TestReadLoad(t *testing.T) {
	t.Parallel()
	if err := readLoad(strings.NewReader(`{"stream":"Loaded"}` + "\n" + `{"stream":"x"}`)); err != nil {
		t.Error(err)
	}
	if err := readLoad(strings.NewReader(`{"errorDetail":{"message":"no"},"error":"no"}`)); err == nil || err.Error() != "no" {
		t.Error(err)
	}
	if err := readLoad(strings.NewReader("garbage")); err == nil {
		t.Error("garbage is taken for success")
	}
}

// A shelf in memory, on a disk of 100 GiB.
func newTestShelf(free int64, images ...shelved) *shelf {
	s := &shelf{floor: 4 << 30, full: 85, log: slog.New(slog.DiscardHandler)}
	images = slices.Clone(images)
	s.usage = func() (int64, int64, bool) { return free, 100 << 30, true }
	s.list = func(context.Context) ([]shelved, error) { return slices.Clone(images), nil }
	s.remove = func(_ context.Context, tag string) error {
		if strings.HasPrefix(tag, "used") {
			return errors.New("a container is made of it")
		}
		free += 5 << 30
		images = slices.DeleteFunc(images, func(i shelved) bool { return i.tag == tag })
		return nil
	}
	return s
}

// Room is made by removing what was used longest ago, and only as much as is needed; a floor stays free, and what several pulls plan is summed.
func TestShelf(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	old := []shelved{{"b", ago(2 * time.Hour)}, {"used", ago(9 * time.Hour)}, {"a", ago(3 * time.Hour)}, {"fresh", ago(time.Minute)}}
	for name, c := range map[string]struct {
		free, need int64 // GiB
		left       int
		err        error
	}{
		"enough":                     {50, 10, 4, nil},
		"above the high-water mark":  {12, 0, 3, nil},
		"all that may go":            {12, 12, 2, nil}, // too full still, which is no error
		"below the floor":            {5, 20, 2, runtime.ErrNoRoom},
		"below the floor at once":    {1, 0, 2, nil},
		"far too large for the disk": {90, 1 << 20, 2, runtime.ErrNoRoom},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestShelf(c.free<<30, old...)
			p, err := s.plan(t.Context(), c.need<<30)
			if left, _ := s.list(t.Context()); !errors.Is(err, c.err) || len(left) != c.left {
				t.Errorf("%v; %v are left", err, left)
			}
			p.end(t.Context())
			if s.planned != 0 {
				t.Errorf("%d bytes are still planned", s.planned)
			}
		})
	}
	s := newTestShelf(50 << 30)
	first, err := s.plan(t.Context(), 40<<30)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.plan(t.Context(), 10<<30); !errors.Is(err, runtime.ErrNoRoom) {
		t.Errorf("the same room twice: %v", err)
	}
	if err := first.become(t.Context(), 30<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := s.plan(t.Context(), 10<<30); err != nil {
		t.Error(err)
	}
}

// One pull of an image goes on at a time, and who waits for it may give up.
func TestOnePullAtATime(t *testing.T) {
	t.Parallel()
	s := newTestShelf(50 << 30)
	done, err := s.pulling(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.pulling(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.pulling(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for another's pull: %v", err)
	}
	next := make(chan error)
	go func() {
		done, err := s.pulling(t.Context(), "a")
		if err == nil {
			done()
		}
		next <- err
	}()
	done()
	if err := <-next; err != nil {
		t.Error(err)
	}
}

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
			x.engine = &engine{Client: c}
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
		if _, err := guardBinary(self); err != nil {
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
		"strange mapping": {"1.41", func(i *system.Info) { i.SecurityOptions = append(i.SecurityOptions, "name=userns") }, "maps users"},
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
	e := &engine{socket: "/run/x.sock"}
	if err := e.explain(&fs.PathError{Op: "dial", Err: fs.ErrPermission}); !errors.Is(err, runtime.ErrEngine) || !strings.Contains(err.Error(), "group docker") {
		t.Error(err)
	}
	if err := e.explain(context.DeadlineExceeded); !errors.Is(err, runtime.ErrEngine) {
		t.Error(err)
	}
}

func TestGPUWithoutToolkit(t *testing.T) {
	t.Parallel()
	r := &Runtime{engine: &engine{}}
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
	e := newExecution("a", t.TempDir(), os.Stdin, &engine{}, slog.Default())
	e.owner = nil
	close(e.gone)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := e.stats(ctx); !errors.Is(err, runtime.ErrClosed) {
		t.Error(err)
	}
}
