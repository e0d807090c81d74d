// Package runtimes opens the runtimes that a peer has: WebAssembly and volumes always, and containers if it sells and
// finds an engine.
package runtimes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker"
	"github.com/starling-network/starling/node/runtime/storage"
	"github.com/starling-network/starling/node/runtime/wasm"
)

// Set is a peer's runtimes, by name.
type Set map[string]runtime.Runtime

// Containers reports whether a container engine is among them.
func (s Set) Containers() bool { return s[docker.Name] != nil }

// Open opens the runtimes of the peer with a key and its home directory. cache holds compiled programs. The Set must be
// closed even after an error.
func Open(ctx context.Context, c config.Docker, home, cache string, key sign.Key, log *slog.Logger) (Set, error) {
	s := Set{}
	w, err := wasm.New(wasm.Config{CacheDir: filepath.Join(cache, "wasm"), Logger: log})
	if err != nil {
		return s, err
	}
	s[wasm.Name], s[storage.Name] = w, storage.New(storage.Config{Log: log})
	d, err := openDocker(ctx, c, home, key, log)
	if d != nil {
		s[docker.Name] = d
	}
	return s, err
}

// Close closes all.
func (s Set) Close() error {
	var errs []error
	for _, name := range []string{docker.Name, wasm.Name, storage.Name} {
		if c, ok := s[name].(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// dockerTimeout bounds the search for the container engine.
const dockerTimeout = 20 * time.Second

// openDocker connects to the container engine. It returns nil if there is none and the configuration does not require
// one.
func openDocker(
	ctx context.Context, c config.Docker, home string, key sign.Key, log *slog.Logger,
) (runtime.Runtime, error) {
	if c.Enabled == config.DockerOff {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dockerTimeout)
	defer cancel()
	rt, err := docker.New(ctx, docker.Config{
		Peer: key.String(), Host: c.Host, Runtime: c.Runtime, Scratch: home, Logger: log,
		Registries: c.Registries, MaxImageMiB: c.MaxImageMiB, ImagesPercent: c.ImagesPercent, FreeMiB: c.FreeMiB,
	})
	if err != nil && c.Enabled == config.DockerOn {
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
