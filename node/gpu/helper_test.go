package gpu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/starling-network/starling/node/child"
)

// helperMode makes this test binary a helper that does as it says.
const helperMode = "STARLING_TEST_GPU_HELPER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperMode); mode != "" {
		os.Exit(badHelper(mode))
	}
	code := m.Run()
	_ = os.RemoveAll(builtDir)
	os.Exit(code)
}

// fixed is a backend with these devices.
type fixed []Device

func (f fixed) Inventory() (Inventory, error) {
	return Inventory{Devices: f, Driver: "550.54.15", Source: "nvml"}, nil
}

func (f fixed) Health(uuids []string) (map[string]Health, error) {
	h := map[string]Health{"GPU-unasked": {}}
	for _, d := range f {
		h[d.UUID] = Health{Throttle: []string{"power cap"}}
	}
	return h, nil
}

// badHelper is a helper process with one fault.
func badHelper(mode string) int {
	good := func() (Backend, error) { return fixed{sample(0), sample(1)}, nil }
	in := bufio.NewReader(os.Stdin)
	request := func() { _, _ = in.ReadString('\n') }
	switch mode {
	case "good":
		if Serve(os.Stdin, os.Stdout, good) != nil {
			return 1
		}
	case "segfault": // as a driver does it, in the middle of a call
		request()
		fmt.Fprintln(os.Stderr, "\x1b[31mnvidia: something\x07 broke")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		time.Sleep(time.Hour)
	case "killed":
		request()
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "exit":
		return 7
	case "hang":
		request()
		time.Sleep(time.Hour)
	case "deaf": // does not even read
		time.Sleep(time.Hour)
	case "garbage":
		request()
		fmt.Println("\x00\xff not json")
		request()
	case "flood": // a line without end
		request()
		for {
			if _, err := os.Stdout.WriteString(strings.Repeat("x", 64<<10)); err != nil {
				return 0
			}
		}
	case "wrong-id":
		request()
		fmt.Println(`{"version":1,"id":999,"inventory":{"devices":[]}}`)
		request()
	case "unasked":
		fmt.Println(`{"version":1,"id":1,"inventory":{"devices":[]}}`)
		fmt.Println(`{"version":1,"id":1,"inventory":{"devices":[]}}`)
		request()
		request()
	case "version":
		request()
		fmt.Println(`{"version":2,"id":1}`)
		request()
	case "empty":
		request()
		fmt.Println(`{"version":1,"id":1}`)
		request()
	case "init":
		_ = Serve(os.Stdin, os.Stdout, func() (Backend, error) { return nil, errors.New("initialising: the kernel driver is not loaded") })
	case "no-library":
		_ = Serve(os.Stdin, os.Stdout, func() (Backend, error) { return nil, NoLibrary(errors.New("libnvidia-ml.so.1 was not found")) })
	}
	return 0
}

// atOnce starts a helper again without waiting.
func atOnce(int) time.Duration { return 0 }

// startHelper is a helper that behaves as mode says, with nothing to wait for after a failure.
func startHelper(t *testing.T, mode string) *helper {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := startedBy(child.Config{Path: self, Env: []string{helperMode + "=" + mode}, Backoff: atOnce})
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func TestHelperAnswers(t *testing.T) {
	t.Parallel()
	h := startHelper(t, "good")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			p, err := h.call(t.Context(), opInventory, nil)
			if err != nil || p.Inventory == nil || !reflect.DeepEqual(p.Inventory.Devices, []Device{sample(0), sample(1)}) {
				t.Errorf("%+v, %v", p.Inventory, err)
			}
		})
	}
	wg.Wait()
	n := &nvidia{helper: h}
	health, err := n.Health(t.Context(), []string{sample(0).UUID, "GPU-none"})
	if err != nil || len(health) != 1 || len(health[sample(0).UUID].Throttle) != 1 {
		t.Errorf("%v, %v", health, err)
	}
	if _, err := n.Health(t.Context(), make([]string, MaxDevices+1)); err == nil {
		t.Error("more devices than there can be")
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.call(t.Context(), opInventory, nil); !errors.Is(err, ErrHelper) {
		t.Errorf("a closed helper answers: %v", err)
	}
}

// Whatever a helper does, the peer gets a sentence that says it, and goes on.
func TestHelperFails(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"segfault": "NVML helper crashed: exit status 2: [31mnvidia: something broke SIGSEGV: segmentation violation", // Go's runtime exits so
		"killed":   "NVML helper crashed: signal: killed",
		"exit":     "NVML helper crashed: exit status 7",
		"garbage":  "NVML helper answers nonsense: not a reply",
		"flood":    "NVML helper answers nonsense: a line of more than 1048576 bytes",
		"wrong-id": "answer 999 to request 1",
		"version":  "got 2, want 1: build both from one tree",
		"init":     "NVML: initialising: the kernel driver is not loaded",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h := startHelper(t, mode)
			for n := range 3 { // it is started again each time
				if mode == "wrong-id" && n > 0 {
					break
				}
				_, err := h.call(t.Context(), opInventory, nil)
				if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\x1b\x07\n") {
					t.Fatalf("%v, want %q", err, want)
				}
				if errors.Is(err, ErrHelper) == (mode == "init") {
					t.Fatalf("%v is of the wrong kind", err)
				}
			}
		})
	}
}

// Answers that nobody asked for are not taken for answers to what is asked later.
func TestHelperUnasked(t *testing.T) {
	t.Parallel()
	h := startHelper(t, "unasked")
	if _, err := h.call(t.Context(), opInventory, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := h.call(t.Context(), opInventory, nil); err == nil || !strings.Contains(err.Error(), "answer 1 to request 2") {
		t.Error(err)
	}
}

// A driver that hangs does not hang the peer: the call ends at its limit, or with its context.
func TestHelperHangs(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"hang", "deaf"} {
		h := startHelper(t, mode)
		h.timeout = 50 * time.Millisecond
		if _, err := h.call(t.Context(), opInventory, nil); !errors.Is(err, ErrHelper) || !strings.Contains(err.Error(), "hangs: no answer within") {
			t.Errorf("%s: %v", mode, err)
		}
		h.timeout = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if _, err := h.call(ctx, opInventory, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func TestHelperCannotStart(t *testing.T) {
	t.Parallel()
	h := newHelper(filepath.Join(t.TempDir(), "gone"))
	if _, err := h.call(t.Context(), opInventory, nil); !errors.Is(err, ErrHelper) || !strings.Contains(err.Error(), "cannot be started") {
		t.Error(err)
	}
}
