package runtimes

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
)

// A section decides whether containers are offered, must be, or are not.
func TestOpenDocker(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	none := "unix://" + filepath.Join(t.TempDir(), "no.sock")
	if rt, err := openDocker(t.Context(), config.Docker{Enabled: config.DockerAuto, Host: none}, t.TempDir(), sign.Key{1}, log); rt != nil || err != nil {
		t.Errorf("auto without an engine: %v, %v", rt, err)
	}
	if rt, err := openDocker(t.Context(), config.Docker{Enabled: config.DockerOff}, t.TempDir(), sign.Key{1}, log); rt != nil || err != nil {
		t.Errorf("off: %v, %v", rt, err)
	}
	if _, err := openDocker(t.Context(), config.Docker{Enabled: config.DockerOn, Host: none}, t.TempDir(), sign.Key{1}, log); err == nil || !strings.Contains(err.Error(), "docker.enabled is true") {
		t.Errorf("on without an engine: %v", err)
	}
}

// Without an engine a peer runs WebAssembly and keeps volumes.
func TestOpen(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	none := config.Docker{Enabled: config.DockerAuto, Host: "unix://" + filepath.Join(home, "no.sock")}
	s, err := Open(t.Context(), none, home, home, sign.Key{1}, slog.New(slog.DiscardHandler))
	if err != nil || len(s) != 2 || s["wasm"] == nil || s["volume"] == nil || s.Containers() {
		t.Errorf("runtimes %v, %v", s, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	none.Enabled = config.DockerOn
	s, err = Open(t.Context(), none, home, home, sign.Key{1}, slog.New(slog.DiscardHandler))
	if err == nil || s["wasm"] == nil {
		t.Errorf("runtimes %v, %v", s, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
