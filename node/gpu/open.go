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
	// ProcRoot and SysRoot stand for /proc and /sys.
	ProcRoot, SysRoot string
	// AMDSMI is AMD's program, asked for names that the kernel does not give; empty means the one on the PATH.
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
	// Inventory lists all devices, also those that are not to be sold. Errors of the search are in its Problems; the
	// returned error is that of the context.
	Inventory(ctx context.Context) (Inventory, error)
	// Health is that of the devices asked for, by UUID; devices that are not there are left out.
	Health(ctx context.Context, uuids []string) (map[string]Health, error)
	// Close ends the processes that the source has started.
	Close() error
}

// Open returns the source for a configuration: that of the machine's hardware, or of a mock where that is allowed. A
// machine without GPUs is no error: its inventory is empty.
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
			return nil, fmt.Errorf("%w %s: %w; the mocks are in it: build it with `make build` where a C compiler is",
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

// checkMock reports whether the mock that a configuration asks for is known and allowed.
func checkMock(cfg Config) error {
	if !cfg.Simulated {
		return fmt.Errorf("%w: %.40s: the genesis of this network does not say that it is simulated, "+
			"so only real devices may be sold on it",
			ErrMock, cfg.Mock)
	}
	if !slices.Contains(Mocks, strings.TrimSuffix(cfg.Mock, MockMIG)) {
		return fmt.Errorf("%w: %.40q is not known; known are %s, each with %s behind it for slices",
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
