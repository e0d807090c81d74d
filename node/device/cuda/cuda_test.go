package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/node/device/cuda/cudatest"
	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/node/device/cuda/wire"
	"github.com/starling-network/starling/verify/challenge"
)

// helperMode makes this test binary a helper: the real one, with a simulated GPU, and a fault.
const helperMode = "STARLING_TEST_CUDA_HELPER"

const uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperMode); mode != "" {
		os.Exit(helper(mode))
	}
	os.Exit(m.Run())
}

func helper(mode string) int {
	mode, argument, _ := strings.Cut(mode, "=")
	open := func() (engine.GPU, wire.Description, error) {
		switch mode {
		case "no-library":
			return nil, wire.Description{}, engine.NoLibrary(errors.New("libcuda.so.1: cannot open"))
		case "no-device":
			return nil, wire.Description{}, errors.New("CUDA_ERROR_NO_DEVICE")
		}
		about := wire.Description{Capability: 80, Driver: 12040, Name: "NVIDIA Test"}
		for i := range about.UUID {
			about.UUID[i] = byte(i)
		}
		if mode == "idle" {
			return idle{}, about, nil
		}
		g, err := cudatest.New(80, 1<<20)
		if err != nil {
			return nil, wire.Description{}, err
		}
		g.Launched = func(k ptx.Kernel) error {
			switch {
			case mode == "crash" && k.Name == ptx.Gemm.Name:
				os.Exit(139)
			case mode == "fault" && k.Name == ptx.Gemm.Name:
				return errors.New("CUDA_ERROR_ILLEGAL_ADDRESS")
			case mode == "hang" && k.Name == ptx.Gemm.Name, mode == "slow" && k.Name == ptx.Gemm.Name:
				if err := os.WriteFile(argument, nil, 0o600); err != nil {
					return err
				}
				for mode == "hang" {
					time.Sleep(time.Hour)
				}
				for { // until the test says that it has cancelled
					if _, err := os.Stat(argument + ".cancelled"); err == nil {
						return nil
					}
					time.Sleep(time.Millisecond)
				}
			}
			return nil
		}
		if got := os.Getenv("CUDA_VISIBLE_DEVICES"); got != uuid {
			about.UUID[0] = 9
		}
		return g, about, nil
	}
	if mode == "garbage" {
		fmt.Println("no frame at all, but text")
	}
	if err := engine.Serve(os.Stdin, os.Stdout, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func config(t testing.TB, mode string) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{UUID: uuid, Helper: self, Reserve: 1000, env: []string{helperMode + "=" + mode}, backoff: func(int) time.Duration { return 0 }}
}

func open(t *testing.T, cfg Config) *Device {
	t.Helper()
	d, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

var (
	shape = challenge.Shape{Rows: 64, Columns: 64, Depth: 64, Products: 1}
	walk  = challenge.Walk{Cells: 500, Work: 2, Walkers: 40, Steps: 8}
	set   = device.Of(sign.Hash{1}, walk)
)

// The device answers as the processor does, from several goroutines.
func TestDevice(t *testing.T) {
	t.Parallel()
	d := open(t, config(t, "good"))
	want := device.Info{Kind: device.CUDA, Model: "NVIDIA Test", Serial: uuid, Memory: 1<<20 - 1000, Capability: 80}
	if d.Info() != want {
		t.Errorf("%+v", d.Info())
	}
	c := cpu.New(cpu.Config{Memory: 1 << 20})
	for _, x := range []device.Device{d, c} {
		if _, err := x.Walk(t.Context(), 5, set, walk); !errors.Is(err, device.ErrNoDataset) {
			t.Errorf("%v", err)
		}
		if err := x.Fill(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		large := set
		large.Cells = 1 << 20
		if err := x.Fill(t.Context(), large); !errors.Is(err, device.ErrMemory) {
			t.Errorf("%v", err)
		}
		if err := x.Fill(t.Context(), set); err != nil {
			t.Fatal(err)
		}
	}
	if d.Info() != want {
		t.Errorf("what is resident counts as taken: %+v", d.Info())
	}
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			seed := sign.Hash{byte(n)}
			tiles, err := d.Multiply(t.Context(), seed, shape)
			same, err2 := c.Multiply(t.Context(), seed, shape)
			if err != nil || err2 != nil || !slices.Equal(tiles, same) {
				t.Error("tiles differ", err, err2)
			}
			ends, err := d.Walk(t.Context(), uint64(n), set, walk)
			sameEnds, err2 := c.Walk(t.Context(), uint64(n), set, walk)
			if err != nil || err2 != nil || !slices.Equal(ends, sameEnds) {
				t.Error("ends differ", err, err2)
			}
			again, err := d.Ends(t.Context(), uint64(n), set, walk, 0)
			sameAgain, err2 := c.Ends(t.Context(), uint64(n), set, walk, 0)
			if err != nil || err2 != nil || !slices.Equal(again, sameAgain) {
				t.Error("a group differs", err, err2)
			}
		})
	}
	wg.Wait()
	if err := d.Evict(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Refresh(t.Context()); err != nil || d.Info() != want {
		t.Errorf("%+v, %v", d.Info(), err)
	}
	if _, err := d.Walk(t.Context(), 5, set, walk); !errors.Is(err, device.ErrNoDataset) {
		t.Error(err)
	}
	if _, err := d.Multiply(t.Context(), sign.Hash{}, challenge.Shape{}); !errors.Is(err, challenge.ErrShape) {
		t.Error(err)
	}
	if err := d.Fill(t.Context(), device.Dataset{Cells: 1}); !errors.Is(err, challenge.ErrShape) {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Evict(t.Context()); !errors.Is(err, device.ErrClosed) {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		want   error
		text   string
	}{
		"uuid":       {func(c *Config) { c.UUID = "0" }, ErrUUID, `"0"`},
		"other":      {func(c *Config) { c.UUID = strings.Replace(uuid, "00010203", "ffffffff", 1) }, ErrUUID, "driver: got 09010203"},
		"no helper":  {func(c *Config) { c.Helper = filepath.Join(t.TempDir(), "x") }, ErrNoHelper, "no such file"},
		"no library": {func(c *Config) { c.env = []string{helperMode + "=no-library"} }, ErrNoLibrary, "cannot open"},
		"no device":  {func(c *Config) { c.env = []string{helperMode + "=no-device"} }, ErrCUDA, "CUDA_ERROR_NO_DEVICE"},
		"garbage":    {func(c *Config) { c.env = []string{helperMode + "=garbage"} }, ErrHelper, "answers nonsense"},
	} {
		cfg := config(t, "good")
		c.change(&cfg)
		if _, err := Open(t.Context(), cfg); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A helper that crashed, or whose driver failed, is started again, and has nothing resident.
func TestFailure(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]error{"crash": ErrHelper, "fault": ErrCUDA} {
		d := open(t, config(t, mode))
		if err := d.Fill(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Walk(t.Context(), 1, set, walk); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Multiply(t.Context(), sign.Hash{}, shape); !errors.Is(err, want) {
			t.Errorf("%s: %v", mode, err)
		}
		if _, err := d.Walk(t.Context(), 1, set, walk); !errors.Is(err, device.ErrNoDataset) {
			t.Errorf("%s: %v", mode, err)
		}
		if err := d.Fill(t.Context(), set); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// A call that is cancelled ends at the next wait, and the dataset stays. A helper that does not end it is killed.
func TestCancel(t *testing.T) {
	t.Parallel()
	for mode, kept := range map[string]bool{"slow": true, "hang": false} {
		started := filepath.Join(t.TempDir(), "started")
		cfg := config(t, mode+"="+started)
		cfg.grace = time.Hour
		if !kept {
			cfg.grace = time.Millisecond
		}
		d := open(t, cfg)
		if err := d.Fill(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for {
				if _, err := os.Stat(started); err == nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
			cancel()
			if err := os.WriteFile(started+".cancelled", nil, 0o600); err != nil {
				t.Error(err)
			}
		}()
		if _, err := d.Multiply(ctx, sign.Hash{}, shape); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", mode, err)
		}
		_, err := d.Walk(t.Context(), 1, set, walk)
		if kept && err != nil || !kept && !errors.Is(err, device.ErrNoDataset) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}
