package wasm

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
	"github.com/starling-network/starling/node/wholefile"
)

// Files of an execution's directory; see the package comment.
const (
	specFile   = "spec.json"
	statusFile = "status.json"
	ownerFile  = "owner.lock"
	aliveFile  = "alive.lock"
	childLog   = "child.log"
	controlDir = "control"

	maxStateFile = 1 << 20
)

func logFile(s runtime.Stream) string { return string(s) + ".log" }

// childSpec is spec.json.
type childSpec struct {
	Spec     runtime.Spec  `json:"spec"`
	CacheDir string        `json:"cache_dir"`
	Grace    time.Duration `json:"grace"`
}

// phase of an execution, in status.json. starting → running → ended; starting → ended.
type phase string

const (
	phaseStarting phase = "starting" // the child prepares the module
	phaseRunning  phase = "running"  // the guest runs
	phaseEnded    phase = "ended"    // Exit is set
)

// status is status.json.
type status struct {
	Phase     phase        `json:"phase"`
	Pid       int          `json:"pid"`
	CPUMillis uint64       `json:"cpu_millis"`
	MemoryMiB uint32       `json:"memory_mib"`
	Exit      runtime.Exit `json:"exit"`
}

func (s status) check() error {
	switch s.Phase {
	case phaseStarting, phaseRunning, phaseEnded:
	default:
		return fmt.Errorf("unknown phase %q", s.Phase)
	}
	if s.Pid < 1 {
		return fmt.Errorf("process id %d", s.Pid)
	}
	switch s.Exit.Reason {
	case runtime.ReasonNone, runtime.ReasonOOM, runtime.ReasonTimeout,
		runtime.ReasonKilled, runtime.ReasonTrap, runtime.ReasonLost:
	default:
		return fmt.Errorf("unknown reason %q", s.Exit.Reason)
	}
	return nil
}

func decodeStatus(b []byte) (status, error) {
	var s status
	if err := decode(b, &s); err != nil {
		return status{}, fmt.Errorf("decoding status: %w", err)
	}
	if err := s.check(); err != nil {
		return status{}, fmt.Errorf("decoding status: %w", err)
	}
	return s, nil
}

func decodeSpec(b []byte) (childSpec, error) {
	var s childSpec
	if err := decode(b, &s); err != nil {
		return childSpec{}, fmt.Errorf("decoding spec: %w", err)
	}
	if err := s.Spec.Check(); err != nil {
		return childSpec{}, fmt.Errorf("decoding spec: %w", err)
	}
	return s, nil
}

func decode(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("bytes after the end")
	}
	return nil
}

// readState reads a state file, bounded.
func readState(dir, name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxStateFile+1))
	if err == nil && len(b) > maxStateFile {
		err = fmt.Errorf("%s is over %d bytes", name, maxStateFile)
	}
	return b, err
}

func readStatus(dir string) (status, error) {
	b, err := readState(dir, statusFile)
	if err != nil {
		return status{}, fmt.Errorf("reading status: %w", err)
	}
	return decodeStatus(b)
}

func readSpec(dir string) (childSpec, error) {
	b, err := readState(dir, specFile)
	if err != nil {
		return childSpec{}, fmt.Errorf("reading spec: %w", err)
	}
	return decodeSpec(b)
}

// writeState replaces a state file as a whole: a reader sees the old or the new one at any moment, a crash included. It
// is not synced to the disk: when the machine itself goes down the execution is lost in any case.
func writeState(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	if err := wholefile.Write(filepath.Join(dir, name), b, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
