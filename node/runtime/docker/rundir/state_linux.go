package rundir

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
	"github.com/starling-network/starling/node/wholefile"
)

// Files of an execution's directory; see the package comment of runtime/docker.
const (
	OwnerFile  = "owner.lock"
	ReportFile = "report.json"
	ControlDir = "control"
	NetDir     = "net"
	FilesDir   = "files"

	stateFile  = "state.json"
	killedFile = "killed"
)

// LogFile is the name of a stream's log.
func LogFile(s runtime.Stream) string { return string(s) + ".log" }

// State is the data for a later process of the peer. No part of the spec that could be secret is in it.
type State struct {
	ID        string        `json:"id"`
	Container string        `json:"container"` // as the engine identifies it
	Guard     int           `json:"guard"`     // a process of its container on this machine
	Token     string        `json:"token"`     // by which its guard and its sidecar are known
	Started   time.Time     `json:"started"`
	WallTime  time.Duration `json:"wall_time"` // 0 is no limit
	GPUs      int           `json:"gpus,omitempty"`
	UUIDs     []string      `json:"uuids,omitempty"` // of the GPUs
	// Measured are the directories of writable mounts that are held to DiskBytes by looking at them: none where a
	// volume holds them.
	Measured  []string `json:"measured,omitempty"`
	DiskBytes int64    `json:"disk_bytes,omitempty"`
	Volume    string   `json:"volume,omitempty"`  // a directory in it, where there is one
	Sidecar   string   `json:"sidecar,omitempty"` // container of one with an overlay
}

// DecodeState decodes the state and refuses one with unknown fields, or that no peer writes.
func DecodeState(b []byte) (State, error) {
	var s State
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return State{}, fmt.Errorf("decoding state: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return State{}, errors.New("decoding state: bytes after its end")
	}
	if s.ID == "" || s.Container == "" || s.Guard < 1 || s.Token == "" || s.Started.IsZero() ||
		s.WallTime < 0 || s.GPUs < 0 || s.DiskBytes < 0 {
		return State{}, errors.New("decoding state: incomplete")
	}
	return s, nil
}

// ReadState reads the state of the execution in a directory. It returns fs.ErrNotExist if there is none.
func ReadState(dir string) (State, error) {
	b, err := readFile(filepath.Join(dir, stateFile))
	if err != nil {
		return State{}, fmt.Errorf("reading state: %w", err)
	}
	return DecodeState(b)
}

// WriteState replaces the state.
func WriteState(dir string, s State) error { return writeFile(dir, stateFile, s) }

// WriteReport replaces the report.
func WriteReport(dir string, r guard.Report) error { return writeFile(dir, ReportFile, r) }

// MarkKilled notes for a later process that the program was ended on purpose.
func MarkKilled(dir string) error { return os.WriteFile(filepath.Join(dir, killedFile), nil, 0o600) }

// MarkedKilled reports whether the program was ended on purpose.
func MarkedKilled(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, killedFile))
	return err == nil
}

// ReadReport reads the report of the execution in a directory.
func ReadReport(dir string) (guard.Report, error) {
	b, err := readFile(filepath.Join(dir, ReportFile))
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

// writeFile replaces a file as a whole. It is not synced to the disk: when the machine itself goes down, so does the
// container.
func writeFile(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	if err := wholefile.Write(filepath.Join(dir, name), b, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
