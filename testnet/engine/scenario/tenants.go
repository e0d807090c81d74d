//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/runtime/volume"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/scenarios"
)

const (
	// tenantTime bounds each step of the scenario of tenants.
	tenantTime = 10 * time.Minute
	// honestJobs is the number of jobs of each runtime beside the attackers.
	honestJobs = 2
)

// tenants is the scenario of containers and modules that exceed their limits: on a free network, with one engine.
type tenants struct {
	world
	module string // of wasm
	inside *victim
	evil   *hostile
}

// victim is a service of the provider's machine that no order may reach.
type victim struct {
	addr  string
	calls atomic.Int64
	l     net.Listener
}

// hostile is a registry that redirects its clients to a victim.
type hostile struct {
	addr string
	l    net.Listener
}

// RunTenants runs the scenario of hostile tenants. Rows and errors are as Run's.
func RunTenants(ctx context.Context, o scenarios.Options) (rows []scenarios.Row, err error) {
	if err := engine.Available(); err != nil {
		return nil, err
	}
	w := &tenants{world: world{Options: o}}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	return scenarios.Play(ctx, o, tenantTime, []scenarios.Step{
		{What: "honest jobs alone: a container and a module", Run: w.honest},
		{What: "hostile containers and modules all at once, and honest jobs beside them", Run: w.attacked},
		{What: "no private service was called for any image", Run: w.untouched},
		{What: "honest jobs after it", Run: w.honest},
		{What: "no container is left", Run: w.leavesNothing},
		{What: "no file system and no file of a program is left", Run: func(ctx context.Context) (string, error) {
			return noVolumes(ctx, w.net.Providers())
		}},
	})
}

func (w *tenants) start(ctx context.Context) error {
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return err
	}
	box, probe := filepath.Join(w.Dir, "box"), filepath.Join(w.Dir, "probe")
	w.module = filepath.Join(w.Dir, "guest.wasm")
	const module = "github.com/starling-network/starling/"
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", w.module,
		module+"node/runtime/runtimetest/guest/cmd")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if err := errors.Join(engine.Build(box, module+"testnet/engine/box"),
		engine.Build(probe, module+"node/runtime/docker/probe"), build.Run()); err != nil {
		return err
	}
	e, err := engine.Start(ctx, engine.Options{})
	if err != nil {
		return err
	}
	w.engines = append(w.engines, e)
	if w.registry, err = engine.NewRegistry(); err != nil {
		return err
	}
	if w.image, err = w.registry.Push("box", nil, engine.File{Path: "/box", From: box},
		engine.File{Path: "/probe", From: probe}); err != nil {
		return err
	}
	if w.inside, err = newVictim(); err != nil {
		return err
	}
	if w.evil, err = newHostile(w.inside.addr); err != nil {
		return err
	}
	w.net, err = testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(w.Dir, "net"), Binary: w.Binary, Providers: 1, Buyers: 1, Units: 16, Free: true, Say: w.Say,
		Env: []string{"XDG_CACHE_HOME=" + filepath.Join(w.Dir, "cache")}, Engine: func(int) string { return e.Host() },
		Registries: append(w.registry.Addrs(), w.evil.addr),
		Unit:       config.Unit{MilliCPU: 500, MemoryMiB: 512, DiskMiB: 64},
	})
	return err
}

func (w *tenants) close() error {
	if w.inside != nil {
		_ = w.inside.l.Close()
	}
	if w.evil != nil {
		_ = w.evil.l.Close()
	}
	return w.world.close()
}

func newVictim() (*victim, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &victim{addr: l.Addr().String(), l: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			v.calls.Add(1)
			_ = c.Close()
		}
	}()
	return v, nil
}

// newHostile serves a hostile registry. By the image's name, it names a victim as its token server, or redirects to it.
func newHostile(to string) (*hostile, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			switch {
			case strings.Contains(req.URL.Path, "/redirect"):
				http.Redirect(w, req, "http://"+to+"/latest/meta-data/", http.StatusTemporaryRedirect)
			case req.URL.Path == "/v2/" && req.Header.Get("Authorization") == "":
				w.WriteHeader(http.StatusOK)
			default:
				w.Header().Set("WWW-Authenticate",
					fmt.Sprintf(`Bearer realm="http://%s/latest/meta-data/role",service="x"`, to))
				w.WriteHeader(http.StatusUnauthorized)
			}
		}))
	}()
	return &hostile{l.Addr().String(), l}, nil
}

// tenant is a hostile job and its expected end.
type tenant struct {
	what  string
	args  []string // of starling run
	codes []int    // one of these
}

func (w *tenants) hostile() []tenant {
	probe := func(timeout string, args ...string) []string {
		return append([]string{"--entrypoint", "/probe", "--timeout", timeout, "--out", "/out", w.image, "--"}, args...)
	}
	image := func(name string) []string { return []string{name + "@sha256:" + strings.Repeat("1", 64)} }
	_, port, _ := net.SplitHostPort(w.inside.addr)
	return []tenant{
		{"fills its disk", probe("8m", "fill", "/out"), []int{1}},
		{"fills it with many files and threads", probe("8m", "starve", "/out"), []int{1}},
		{"fills it with files without names", probe("10s", "hide", "/out"), []int{124}},
		{"waits for the disk without end", probe("10s", "fsync", "/out"), []int{124}},
		{"takes all resources of its user", probe("10s", "hoard"), []int{124}},
		{"forks without end", probe("10s", "forks"), []int{1, 124}},
		{"leaves sparse files", []string{"--timeout", "8m", "--out", "/out", w.image, "--", "sparse", "64"}, []int{1}},
		{"is an image at a private address", image(w.inside.addr + "/x"), []int{6}},
		{"is an image at a name of this machine", image("localhost:" + port + "/x"), []int{6}},
		{"is an image at the metadata service", image("169.254.169.254/x"), []int{6}},
		{"is an image with a private realm", image(w.evil.addr + "/realm"), []int{2, 6}},
		{"is an image that redirects to a private address", image(w.evil.addr + "/redirect"), []int{2, 6}},
		{"is a module that fills its disk", []string{"--timeout", "8m", "--out", "/out", w.module, "--", "fill",
			"/out/f"}, []int{1}},
		{"is a module that computes without end", []string{"--timeout", "10s", w.module, "--", "spin"}, []int{124}},
	}
}

// runs runs a job and checks that it ends with one of these exit codes.
func (w *tenants) runs(ctx context.Context, args []string, codes ...int) error {
	s, err := w.starling(ctx, append([]string{"run", "--queue-timeout", "2m", "--retries", "1"}, args...)...)
	if err != nil {
		return err
	}
	for _, c := range codes {
		if s.Code == c {
			return nil
		}
	}
	return fmt.Errorf("want exit code %v: %v", codes, s)
}

// honest runs jobs that must succeed.
func (w *tenants) honest(ctx context.Context) (string, error) {
	began := time.Now()
	for range honestJobs {
		if err := w.runs(ctx,
			[]string{"--timeout", "3m", "--out", "/out", w.image, "--", "sparse", "1"}, 0); err != nil {
			return "", fmt.Errorf("a container: %w", err)
		}
		write := []string{"--timeout", "3m", "--out", "/out", w.module, "--", "write", "/out/f"}
		if err := w.runs(ctx, write, 0); err != nil {
			return "", fmt.Errorf("a module: %w", err)
		}
	}
	return fmt.Sprintf("%d containers and %d modules ended well after %v",
		honestJobs, honestJobs, time.Since(began).Round(time.Millisecond)), nil
}

// attacked runs every hostile job at once.
func (w *tenants) attacked(ctx context.Context) (string, error) {
	all := w.hostile()
	failed := make([]error, len(all))
	var wg sync.WaitGroup
	for i, a := range all {
		wg.Go(func() {
			if err := w.runs(ctx, a.args, a.codes...); err != nil {
				failed[i] = fmt.Errorf("a tenant that %s: %w", a.what, err)
			}
		})
	}
	got, err := w.honest(ctx)
	wg.Wait()
	return fmt.Sprintf("%d hostile jobs ended as expected; beside them %s", len(all), got),
		errors.Join(append(failed, err)...)
}

func (w *tenants) untouched(context.Context) (string, error) {
	if n := w.inside.calls.Load(); n > 0 {
		return "", fmt.Errorf("%d connections reached a private service", n)
	}
	return "no connection was made", nil
}

// noVolumes waits until the disk of no provider has a file of a program, except collected outputs.
func noVolumes(ctx context.Context, all []*testnet.Peer) (string, error) {
	_, err := scenarios.Until(ctx, func() (bool, string, error) {
		var found []string
		for _, p := range all {
			mounted, err := volume.Mounted(p.Home)
			if err != nil {
				return false, "", err
			}
			disks, err := filepath.Glob(filepath.Join(p.Home, "*", "*", "*", "a*", "disk"))
			if err != nil {
				return false, "", err
			}
			found = append(append(found, mounted...), disks...)
		}
		return len(found) == 0, fmt.Sprint(found), nil
	})
	return "none", err
}
