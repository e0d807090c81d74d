// Package runtimes opens the runtimes of programs that a peer has: WebAssembly always, and containers if it sells and
// finds an engine.
package runtimes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker"
	"github.com/starling-network/starling/node/runtime/docker/fetch"
	"github.com/starling-network/starling/node/runtime/wasm"
	"github.com/starling-network/starling/node/service"
)

// Docker is the section of the configuration about the container engine of a peer that sells.
type Docker struct {
	// Enabled is "auto" to offer containers when there is an engine, "true" to refuse to start without one, "false"
	// to offer none.
	Enabled string `yaml:"enabled"`
	// Host is the engine's socket on this machine, as DOCKER_HOST has it; empty means DOCKER_HOST or the usual one.
	Host string `yaml:"host"`
	// Runtime is the OCI runtime that containers of leases run under, by its name in the engine's daemon.json; empty
	// is the engine's own.
	Runtime string `yaml:"runtime"`
	// Registries are those of the operator's own network that images of jobs may come from, HOST or HOST:PORT: over
	// plain HTTP too, and from private addresses. Other registries must be on the internet, with HTTPS.
	Registries []string `yaml:"registries"`
	// MaxImageMiB bounds an image, unpacked; 0 is 64 GiB.
	MaxImageMiB uint32 `yaml:"maxImageMiB"`
	// ImagesPercent is how full the engine's disk may be before images that jobs brought are removed, those that were
	// used longest ago first; 0 is 85. Images that came otherwise stay.
	ImagesPercent uint32 `yaml:"imagesPercent"`
	// FreeMiB is the space of the engine's disk that images leave free; 0 is 4 GiB.
	FreeMiB uint32 `yaml:"freeMiB"`
}

// runtimeName is the form of an OCI runtime's name.
var runtimeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Check refuses a section that cannot work on any machine.
func (d Docker) Check() error {
	if !slices.Contains([]string{"", Auto, On, Off}, d.Enabled) {
		return fmt.Errorf("%w: docker.enabled: %.40q is none of auto, true and false", service.ErrConfig, d.Enabled)
	}
	if d.Runtime != "" && !runtimeName.MatchString(d.Runtime) {
		return fmt.Errorf("%w: docker.runtime: %.40q is no name of an OCI runtime in the engine's daemon.json",
			service.ErrConfig, d.Runtime)
	}
	if _, err := d.Reader(); err != nil {
		return err
	}
	if d.ImagesPercent > 100 {
		return fmt.Errorf("%w: docker.imagesPercent: %d is more than 100", service.ErrConfig, d.ImagesPercent)
	}
	return nil
}

// Reader returns a client of the registries that this peer may read: those of the internet, and the operator's own.
func (d Docker) Reader() (*fetch.Client, error) {
	c, err := fetch.New(d.Registries)
	if err != nil {
		return nil, fmt.Errorf("%w: docker.registries: %w", service.ErrConfig, err)
	}
	return c, nil
}

// The values of Docker.Enabled.
const (
	Auto = "auto"
	On   = "true"
	Off  = "false"
)

// Default is the section of a peer that offers containers if it finds an engine.
func Default() Docker { return Docker{Enabled: Auto} }

// Set is a peer's runtimes, by name.
type Set map[string]runtime.Runtime

// Containers reports whether a container engine is among them.
func Containers(s map[string]runtime.Runtime) bool { return s[docker.Name] != nil }

// Open opens the runtimes of the peer with a key that lives in home. cache holds compiled programs. Close it in any
// case.
func Open(ctx context.Context, c Docker, home, cache string, key sign.Key, log *slog.Logger) (Set, error) {
	s := Set{}
	w, err := wasm.New(wasm.Config{CacheDir: filepath.Join(cache, "wasm"), Logger: log})
	if err != nil {
		return s, err
	}
	s[wasm.Name] = w
	d, err := openDocker(ctx, c, home, key, log)
	if d != nil {
		s[docker.Name] = d
	}
	return s, err
}

// Close closes all.
func (s Set) Close() error {
	var errs []error
	for _, name := range []string{docker.Name, wasm.Name} {
		if c, ok := s[name].(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// dockerTimeout bounds the search for the container engine.
const dockerTimeout = 20 * time.Second

// openDocker connects to the container engine. It returns nil if there is none and the section does not ask for one.
func openDocker(
	ctx context.Context, c Docker, home string, key sign.Key, log *slog.Logger,
) (runtime.Runtime, error) {
	if c.Enabled == Off {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dockerTimeout)
	defer cancel()
	rt, err := docker.New(ctx, docker.Config{
		Peer: key.String(), Host: c.Host, Runtime: c.Runtime, Scratch: home, Logger: log,
		Registries: c.Registries, MaxImageMiB: c.MaxImageMiB, ImagesPercent: c.ImagesPercent, FreeMiB: c.FreeMiB,
	})
	if err != nil && c.Enabled == On {
		return nil, fmt.Errorf("docker.enabled is true: %w", err)
	}
	if err != nil {
		level := slog.LevelInfo
		if c.Runtime != "" { // the operator counts on this one
			level = slog.LevelWarn
		}
		log.Log(ctx, level, "containers are not offered", "reason", err)
		return nil, nil
	}
	return rt, nil
}
