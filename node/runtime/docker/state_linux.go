package docker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

// Files of an execution's directory; see the package comment.
const (
	stateFile  = "state.json"
	reportFile = "report.json"
	ownerFile  = "owner.lock"
	killedFile = "killed"
	controlDir = "control"
	netDir     = "net"
	filesDir   = "files"
)

func logFile(s runtime.Stream) string { return string(s) + ".log" }

// state is the data for a later process of the peer. No part of the spec that could be secret is in it.
type state struct {
	ID        string        `json:"id"`
	Container string        `json:"container"` // as the engine identifies it
	Guard     int           `json:"guard"`     // a process of its container on this machine
	Token     string        `json:"token"`     // by which its guard and its sidecar are known
	Started   time.Time     `json:"started"`
	WallTime  time.Duration `json:"wall_time"` // 0 is no limit
	GPUs      int           `json:"gpus,omitempty"`
	UUIDs     []string      `json:"uuids,omitempty"` // of the GPUs
	// Measured are the directories of writable mounts that are held to DiskBytes by looking at them: none where a volume holds them.
	Measured  []string `json:"measured,omitempty"`
	DiskBytes int64    `json:"disk_bytes,omitempty"`
	Volume    string   `json:"volume,omitempty"`  // a directory in it, where there is one
	Sidecar   string   `json:"sidecar,omitempty"` // container of one with an overlay
}

func decodeState(b []byte) (state, error) {
	var s state
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return state{}, fmt.Errorf("decoding state: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return state{}, errors.New("decoding state: bytes after its end")
	}
	if s.ID == "" || s.Container == "" || s.Guard < 1 || s.Token == "" || s.Started.IsZero() || s.WallTime < 0 || s.GPUs < 0 || s.DiskBytes < 0 {
		return state{}, errors.New("decoding state: incomplete")
	}
	return s, nil
}

func readState(dir string) (state, error) {
	b, err := readFile(filepath.Join(dir, stateFile))
	if err != nil {
		return state{}, fmt.Errorf("reading state: %w", err)
	}
	return decodeState(b)
}

func readReport(dir string) (guard.Report, error) {
	b, err := readFile(filepath.Join(dir, reportFile))
	if err != nil {
		return guard.Report{}, fmt.Errorf("reading report: %w", err)
	}
	return guard.DecodeReport(b)
}

// readFile reads a small file.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, guard.MaxReport+1))
}

// writeFile replaces a file as a whole. It is not synced to the disk: when the machine itself goes down, so does the container.
func writeFile(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	tmp := filepath.Join(dir, "."+name)
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
