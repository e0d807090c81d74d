package testnet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// PeerReport is one peer.
type PeerReport struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Owner  string `json:"owner"`
	PID    int    `json:"pid"`
	Killed bool   `json:"killed,omitempty"`
}

// ReportOf returns the report of a running peer.
func ReportOf(p *Peer) PeerReport {
	return PeerReport{Name: p.Name, Key: p.Key.String(), Owner: p.Owner.String(), PID: p.PID}
}

// WriteReport writes a report to a file as indented JSON.
func WriteReport(path string, report any) error {
	b, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// Seconds is a duration in seconds, rounded to the millisecond.
func Seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond)) / float64(time.Second)
}

// Timed runs a part and records its duration in all.
func Timed(all map[string]float64, name string, do func() error) error {
	began := time.Now()
	err := do()
	all[name] = Seconds(time.Since(began))
	return err
}

// Compile compiles a package of this module to a WASI program.
func Compile(ctx context.Context, pkg, to string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, pkg)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the job (this needs Go, and runs in a checkout of the source): %w\n%s", err, out)
	}
	return nil
}
