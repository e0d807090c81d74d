package hardware

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda"
	"github.com/starling-network/starling/testnet/scenarios"
	"github.com/starling-network/starling/verify/challenge"
)

// faults causes the possible faults of a helper. It checks that each returns its own error and that the next call
// works.
func (b *bench) faults(ctx context.Context) (string, error) {
	w := b.over(b.sizes.steps[0])
	for _, f := range []struct {
		what string
		do   func(context.Context, device.Dataset) error
		want error
	}{
		{"its process is killed while it multiplies", b.killed, cuda.ErrHelper},
		{"a fill is cancelled", b.cancelled, context.DeadlineExceeded},
		{"a dataset larger than any card's memory", func(ctx context.Context, _ device.Dataset) error {
			return b.device.Fill(ctx, device.Dataset{Seed: seed(), Cells: challenge.MaxCells, Work: 1})
		}, device.ErrMemory},
		{"another card's UUID", func(ctx context.Context, _ device.Dataset) error {
			d, err := cuda.Open(ctx, cuda.Config{UUID: "GPU-00000000-0000-0000-0000-0000000000ff", Helper: b.helper})
			if err != nil {
				return err
			}
			if !b.report.GPU { // the interpreter accepts any UUID
				return errors.Join(cuda.ErrCUDA, errors.New("not shown: the interpreter accepts any UUID"), d.Close())
			}
			return d.Close()
		}, cuda.ErrCUDA},
	} {
		of := device.Of(seed(), w)
		err := f.do(ctx, of)
		if !errors.Is(err, f.want) {
			return "", fmt.Errorf("%s: %w, want %w", f.what, err, f.want)
		}
		b.report.Faults = append(b.report.Faults, Fault{f.what, err.Error()})
		// An ended helper is restarted after a pause.
		if _, err := scenarios.Until(ctx, func() (bool, string, error) {
			err := b.device.Fill(ctx, of)
			return err == nil, "", err
		}); err != nil {
			return "", fmt.Errorf("after %s: %w", f.what, err)
		}
		if checked, differ, err := checkGroups(ctx, b.device, of, w, 2); err != nil || differ > 0 {
			return "", fmt.Errorf("after %s: %d of %d walkers differ, %w", f.what, differ, checked, err)
		}
		if _, err := b.device.Commit(ctx, seed(), b.sizes.load); err != nil {
			return "", fmt.Errorf("after %s: %w", f.what, err)
		}
	}
	return fmt.Sprintf("%d faults, each reported by its own error, and the next call worked", len(b.report.Faults)), nil
}

// helpers returns the child processes that are helpers.
func helpers() ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		// pid (comm) state ppid …
		pid, rest, ok := strings.Cut(string(raw), " (")
		at := strings.LastIndex(rest, ") ")
		if !ok || at < 0 || rest[:at] != cuda.HelperName {
			continue
		}
		fields := strings.Fields(rest[at+2:])
		if n, err := strconv.Atoi(pid); err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			out = append(out, n)
		}
	}
	return out, nil
}

// killed starts a computation in a helper, and kills its process.
func (b *bench) killed(ctx context.Context, _ device.Dataset) error {
	if err := b.device.Refresh(ctx); err != nil { // starts the helper
		return err
	}
	all, err := helpers()
	if err != nil || len(all) != 1 {
		return fmt.Errorf("processes %v: %w", all, err)
	}
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := b.device.Multiply(ctx, sign.Hash{1}, b.sizes.shape); err != nil {
				done <- err
				return
			}
		}
	}()
	select {
	case err := <-done:
		return fmt.Errorf("before it was killed: %w", err)
	case <-time.After(50 * time.Millisecond): // the helper is lost during or between two products
	}
	if err := syscall.Kill(all[0], syscall.SIGKILL); err != nil {
		return err
	}
	err = <-done
	if now, listErr := helpers(); listErr != nil || slices.Contains(now, all[0]) && alive(all[0]) {
		return errors.Join(fmt.Errorf("process %d still runs", all[0]), listErr, err)
	}
	return err
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// cancelled cancels a fill of the whole memory before it completes.
func (b *bench) cancelled(ctx context.Context, _ device.Dataset) error {
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	return b.device.Fill(ctx, device.Of(seed(), b.over(b.sizes.steps[len(b.sizes.steps)-1])))
}
