package docker

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/runtimetest"
)

// otherRuntimes are OCI runtimes that the shared engine knows beside its own, and their programs.
var otherRuntimes = map[string]string{"other-runc": "runc", "runsc": "runsc", "runsc-shut": "runsc"}

// needRuntime skips where an OCI runtime is not installed.
func needRuntime(t *testing.T, name string) {
	t.Helper()
	needEngine(t)
	if program := otherRuntimes[name]; program != "" {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed (Debian: %s)", program, program)
		}
	}
}

// under is a peer whose containers run under an OCI runtime of this name, which it has not tried.
func under(t *testing.T, name string, change func(*Config)) *Runtime {
	t.Helper()
	needRuntime(t, name)
	r := newRuntime(t, shared, change)
	r.sandbox.Runtime = name
	return r
}

// gVisor keeps the whole contract.
func TestConformanceRunsc(t *testing.T) {
	t.Parallel()
	needRuntime(t, "runsc")
	ref := pulled(t, newRuntime(t, shared, nil), "plain", nil)
	runtimetest.Run(t, func(t *testing.T) runtimetest.Subject {
		r := under(t, "runsc", nil)
		peer := r.cfg.Peer
		return runtimetest.Subject{
			Runtime: r,
			Restart: func(t *testing.T) runtime.Runtime {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				r = under(t, "runsc", func(c *Config) { c.Peer = peer })
				return r
			},
			Program: ref, Images: true, Command: "/guest", Secrets: true, DiskKills: true,
			Bad: map[string]string{
				"not pulled": "127.0.0.1:1/none@sha256:" + strings.Repeat("0", 64),
			},
		}
	})
}

// The program sees the kernel of the runtime that the operator chose, and the engine has the container under it.
func TestAttackSharedKernel(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"": false, "other-runc": false, "runsc": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needRuntime(t, name)
			r := newRuntime(t, shared, func(c *Config) { c.Runtime = name })
			ref := pulled(t, r, "plain", nil)
			if got := run(t, r, spec(t, ref, "show", "/proc/version")); strings.Contains(got, "gVisor") != own && strings.HasPrefix(got, "Linux version 4.4.0 ") != own {
				t.Errorf("it runs on %s", got)
			}
			h := start(t, r, spec(t, ref, "polite"))
			info, err := r.engine.ContainerInspect(t.Context(), engine.ContainerName(h.Dir))
			if err != nil || name != "" && info.HostConfig.Runtime != name {
				t.Errorf("its runtime is %q, %v", info.HostConfig.Runtime, err)
			}
		})
	}
}

// A runtime that is not there, or under which no container comes to its guard's socket, is found before anything runs under it.
func TestRuntimeThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"no-such": "runsc", "runsc-shut": "--host-uds=open"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needRuntime(t, name)
			peer := newRuntime(t, shared, nil)
			cfg := peer.cfg
			cfg.Runtime = name
			if r, err := New(t.Context(), cfg); !errors.Is(err, runtime.ErrEngine) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want an error that names %s", err, want)
				if r != nil {
					_ = r.Close()
				}
			}
			if n := containers(t, peer); n != 0 {
				t.Errorf("%d containers are left", n)
			}
		})
	}
}

// A program that connects in its guard's stead while the peer is away is not taken for it. Under gVisor both are one process of this
// machine to the peer.
func TestAttackGuardsPlace(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "runsc"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := under(t, name, nil)
			s := probe(t, pulled(t, first, "plain", nil), "stead")
			s.Limits.WallTime = 10 * time.Minute
			h := start(t, first, s)
			until(t, "it tries", func() bool { return strings.Contains(output(t, h, runtime.Stdout), "trying") })
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			next := under(t, name, func(c *Config) { c.Peer = first.cfg.Peer })
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_ = next.Destroy(ctx, h)
			})
			if err := next.Recover(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			// The guard attaches programs; what only says so does not.
			if code, err := next.Attach(t.Context(), h, runtime.Process{Args: []string{"/guest", "exit", "7"}}); err != nil || code != 7 {
				t.Errorf("%d, %v", code, err)
			}
		})
	}
}

// What nobody recovers is ended under a runtime too that cannot end what is paused.
func TestPeerNeverReturnsRunsc(t *testing.T) {
	t.Parallel()
	for name, paused := range map[string]bool{"running": false, "paused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			neverReturns(t, under(t, "runsc", nil), paused)
		})
	}
}
