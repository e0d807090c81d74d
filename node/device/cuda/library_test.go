package cuda

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/verify/challenge"
)

// installed builds the helper program, and the C library of testdata, which stands where NVIDIA's would; it returns the path of one
// and the folder of the other.
func installed(t *testing.T) (program, library string) {
	t.Helper()
	dir := t.TempDir()
	program = filepath.Join(dir, HelperName)
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/starling-network/starling/cmd/"+HelperName)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skipf("no C compiler, so nothing stands where libcuda.so.1 would: %v", err)
	}
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", filepath.Join(dir, "libcuda.so.1"), "testdata/libcuda.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program, dir
}

// The program as it is built and installed, through the calling convention of C, with a library that is well, or is not.
func TestRealHelper(t *testing.T) {
	t.Parallel()
	program, library := installed(t)
	with := func(mode string) Config {
		cfg := config(t, "")
		cfg.Helper, cfg.env = program, []string{"LD_LIBRARY_PATH=" + library, "STARLING_TEST_CUDA=" + mode}
		return cfg
	}
	d := open(t, with(""))
	if want := (device.Info{Kind: device.CUDA, Model: "NVIDIA Stand-In", Serial: uuid, Memory: 64<<20 - 1000, Capability: 86}); d.Info() != want {
		t.Errorf("%+v", d.Info())
	}
	c := cpu.New(cpu.Config{Memory: 1 << 20})
	s := challenge.Shape{Rows: 192, Columns: 320, Depth: 128, Products: 2}
	tiles, err := d.Multiply(t.Context(), sign.Hash{3}, s)
	same, err2 := c.Multiply(t.Context(), sign.Hash{3}, s)
	if err != nil || err2 != nil || !slices.Equal(tiles, same) {
		t.Error("tiles differ", err, err2)
	}
	if err := errors.Join(d.Fill(t.Context(), set), c.Fill(t.Context(), set)); err != nil {
		t.Fatal(err)
	}
	ends, err := d.Walk(t.Context(), 9, set, walk)
	sameEnds, err2 := c.Walk(t.Context(), 9, set, walk)
	if err != nil || err2 != nil || !slices.Equal(ends, sameEnds) {
		t.Error("ends differ", err, err2)
	}
	many := walk
	many.Walkers = 64*3 + 5
	groups, err := d.Walk(t.Context(), 9, set, many)
	sameGroups, err2 := c.Walk(t.Context(), 9, set, many)
	if err != nil || err2 != nil || !slices.Equal(groups, sameGroups) {
		t.Error("groups differ", err, err2)
	}
	large := set
	large.Cells = 64 << 20 / challenge.CellSize
	if err := d.Fill(t.Context(), large); !errors.Is(err, device.ErrMemory) {
		t.Error(err)
	}
	s = challenge.Shape{Rows: 128, Columns: 8192, Depth: 8192, Products: 1}
	if _, err := d.Multiply(t.Context(), sign.Hash{3}, s); !errors.Is(err, device.ErrMemory) || !strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory") {
		t.Error(err)
	}
	for mode, c := range map[string]struct {
		want error
		text string
	}{
		"no-driver": {ErrCUDA, "cuInit: CUDA_ERROR_OTHER (999): something else"},
		"no-device": {ErrCUDA, "the driver shows no device"},
		"jit":       {ErrCUDA, "(218): something else; ptxas fatal: not today"},
		"ancient":   {ErrCUDA, "below 6.1"},
		// One program at a time: the reason, and what to do, not what the second program's context fails with.
		"exclusive":  {ErrCUDA, "compute mode EXCLUSIVE_PROCESS, where one program at a time can use it; audits and a buyer's program need it together: sudo nvidia-smi -c DEFAULT"},
		"prohibited": {ErrCUDA, "compute mode PROHIBITED"},
	} {
		if _, err := Open(t.Context(), with(mode)); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", mode, err)
		}
	}
	for mode, want := range map[string]error{"crash": ErrHelper, "fault": ErrCUDA} {
		d := open(t, with(mode))
		if _, err := d.Multiply(t.Context(), sign.Hash{}, shape); !errors.Is(err, want) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// A driver that hangs takes its helper with it, and nothing else.
func TestRealHelperHangs(t *testing.T) {
	t.Parallel()
	program, library := installed(t)
	cfg := config(t, "")
	cfg.Helper, cfg.env = program, []string{"LD_LIBRARY_PATH=" + library, "STARLING_TEST_CUDA=hang"}
	cfg.grace = time.Millisecond
	d := open(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.Multiply(ctx, sign.Hash{}, shape); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := d.Fill(t.Context(), set); err != nil {
		t.Error(err)
	}
}

// The self-test passes where the kernels are right, fails where one value of one product is wrong, and says where there is
// no library.
func TestSelfTest(t *testing.T) {
	t.Parallel()
	program, library := installed(t)
	for _, c := range []struct {
		library, mode string
		code          int
		out, errOut   string
	}{
		{library, "", 0, "NVIDIA Stand-In, compute capability 8.6, driver of CUDA 12.4", ""},
		{library, "wrong", 1, "FAILED   products 1 × 64×64×64: the GPU differs from the processor", "the GPU differs from the processor"},
		{library, "fault", 1, "FAILED   products 1 × 64×64×64: launching gemm: cuLaunchKernel gemm: CUDA_ERROR_OTHER (700): something else", "launching gemm"},
		{t.TempDir(), "", 3, "", "libcuda.so.1 is not there, so this machine has no NVIDIA driver: "},
	} {
		cmd := exec.Command(program, "--self-test", "--quick")
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+c.library, "STARLING_TEST_CUDA="+c.mode)
		var out, errOut strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errOut
		err := cmd.Run()
		if c.code == 3 && err == nil {
			t.Log("this machine has a driver: what is said where there is none was not seen")
			continue
		}
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errOut.String(), c.errOut) ||
			strings.Count(errOut.String(), "\n") > 1 || c.code == 0 && strings.Count(out.String(), "\nsame ") != 5 {
			t.Errorf("%q: exit code %d, want %d\n%s%s", c.mode, code, c.code, out.String(), errOut.String())
		}
	}
	cmd := exec.Command(program, "extra")
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "--self-test") {
		t.Errorf("%s", out)
	}
}
