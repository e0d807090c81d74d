package testnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// stopWait bounds the wait for the end of a testnet in Down.
const stopWait = 60 * time.Second

// startTime returns the start time of a process in clock ticks since boot (field 22 of /proc/PID/stat); 0 if it is
// unknown.
func startTime(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the command in parentheses and may contain any characters.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 {
		return 0
	}
	n, _ := strconv.ParseUint(string(f[19]), 10, 64)
	return n
}

// Alive reports whether the testnet's process runs.
func (n *Network) Alive() bool {
	return n.PID > 0 && syscall.Kill(n.PID, 0) == nil && startTime(n.PID) == n.Started
}

// Serve runs a testnet that Start or Resume returned until ctx ends or the chain ends.
func Serve(ctx context.Context, n *Network) error {
	var gone <-chan struct{} // never without a chain of its own
	if n.chain != nil {
		gone = n.chain.Done()
	}
	select {
	case <-ctx.Done():
		return n.Stop()
	case <-gone:
		return errors.Join(fmt.Errorf("the local chain ended: %w", n.chain.Err()), n.Stop())
	}
}

// Up starts `binary args...`, which must Serve a testnet in dir, in the
// background and waits until it is ready.
func Up(ctx context.Context, dir, binary string, args []string, say func(string, ...any)) (*Network, error) {
	if old, err := Load(dir); err == nil && old.Alive() {
		return nil, fmt.Errorf("a testnet runs in %s already (process %d)", dir, old.PID)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	_ = os.Remove(filepath.Join(dir, stateFile))
	path := filepath.Join(dir, "testnet.log")
	log, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	shown := 0
	for {
		if b, err := os.ReadFile(path); err == nil {
			for {
				i := bytes.IndexByte(b[shown:], '\n')
				if i < 0 {
					break
				}
				say("%s", b[shown:shown+i])
				shown += i + 1
			}
		}
		if n, err := Load(dir); err == nil && n.Ready && n.PID == cmd.Process.Pid {
			return n, nil
		}
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-ended
			return nil, ctx.Err()
		case <-ended:
			return nil, fmt.Errorf("the testnet did not start: %s", lastLine(path))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}

// Down stops the testnet in dir and waits for its end.
func Down(ctx context.Context, dir string) error {
	n, err := Load(dir)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no testnet runs in %s", dir)
	}
	if err != nil {
		return err
	}
	if !n.Alive() {
		_ = os.Remove(filepath.Join(dir, stateFile))
		return nil // the process was killed; its peers ended with it
	}
	if err := syscall.Kill(n.PID, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping the testnet: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopWait)
	defer cancel()
	for n.Alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the testnet in %s (process %d) does not stop: %w", dir, n.PID, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}
