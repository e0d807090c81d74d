package gpu

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-network/starling/node/child"
)

// Config is the configuration of the search for devices. The zero Config is the real machine.
type Config struct {
	// Simulated is the genesis's flag. Mock can be set only with it.
	Simulated bool
	// Mock requests simulated devices in place of the machine's: one of Mocks, with ":mig" behind it for one with a
	// first GPU divided into slices. Empty means the machine's own.
	Mock string
	// MockSeed makes the UUIDs of simulated devices this peer's own and the same at each start: its key, say.
	MockSeed string
	// Helper is the path of starling-nvml; empty means beside the running program, or on the PATH.
	Helper string
	// ProcRoot and SysRoot replace /proc and /sys.
	ProcRoot, SysRoot string
	// AMDSMI is AMD's program for names that the kernel does not have; if empty, the program on the PATH.
	AMDSMI string
}

// Mocks are the machines that NVIDIA's own mocks simulate.
var Mocks = []string{"dgxa100", "dgxh100", "dgxh200", "dgxb200"}

// MockMIG is the suffix of a mock with a divided first GPU.
const MockMIG = ":mig"

// Source is where devices are found. Its methods may be called at the same time.
type Source interface {
	// Name is the name of the source: "nvml", "nvml-mock dgxh100", "amd-sysfs", "nvml+amd-sysfs", "none".
	Name() string
	// Inventory lists all devices, including unsellable ones. Errors of the search are in its Problems; the returned
	// error is the context's.
	Inventory(ctx context.Context) (Inventory, error)
	// Health returns the health of the given devices by UUID; missing devices are omitted.
	Health(ctx context.Context, uuids []string) (map[string]Health, error)
	// Close ends the processes that the source has started.
	Close() error
}

// Open returns the source for a configuration: the machine's hardware, or a mock where allowed. On a machine without
// GPUs the inventory is empty.
func Open(cfg Config) (Source, error) {
	if cfg.ProcRoot == "" {
		cfg.ProcRoot = "/proc"
	}
	if cfg.SysRoot == "" {
		cfg.SysRoot = "/sys"
	}
	path, err := child.Find(cfg.Helper, HelperName, ErrNoHelper)
	if cfg.Mock != "" {
		if err := checkMock(cfg); err != nil {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("%w %s: %w; build the helper with `make build` and a C compiler",
				ErrMock, cfg.Mock, err)
		}
		return &simulated{nvidia{cfg: cfg, helper: newHelper(path, "--mock", cfg.Mock, "--seed", cfg.MockSeed)}}, nil
	}
	nv := &nvidia{cfg: cfg, missing: err}
	if err == nil {
		nv.helper = newHelper(path)
	}
	return &machine{nvidia: nv, amd: newAMD(cfg)}, nil
}

// checkMock reports whether a configuration's mock is known and allowed.
func checkMock(cfg Config) error {
	if !cfg.Simulated {
		return fmt.Errorf("%w: %.40s: this network's genesis is not marked as simulated, "+
			"so only real devices may be sold on it",
			ErrMock, cfg.Mock)
	}
	if !slices.Contains(Mocks, strings.TrimSuffix(cfg.Mock, MockMIG)) {
		return fmt.Errorf("%w: got %.40q, want one of %s, each with suffix %s for slices",
			ErrMock, cfg.Mock, strings.Join(Mocks, ", "), MockMIG)
	}
	return nil
}

// None is a source without devices.
type None struct{}

// Name is "none".
func (None) Name() string { return "none" }

// Inventory is empty.
func (None) Inventory(ctx context.Context) (Inventory, error) {
	return Inventory{Devices: []Device{}, Source: None{}.Name()}, ctx.Err()
}

// Health is empty.
func (None) Health(context.Context, []string) (map[string]Health, error) { return nil, nil }

// Close does nothing.
func (None) Close() error { return nil }
