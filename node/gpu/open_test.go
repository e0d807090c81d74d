package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// builtDir is where the real helper program is built; TestMain removes it.
var builtDir = filepath.Join(os.TempDir(), fmt.Sprintf("starling-gpu-test-%d", os.Getpid()))

// built is the real helper program.
var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(builtDir, HelperName)
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "nvml", "-o", path, "github.com/starling-network/starling/cmd/"+HelperName)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

func realHelper(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"cc", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here: the real helper cannot be built", tool)
		}
	}
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenRefusesMocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Mock: "dgxh100"}, "this network's genesis is not marked as simulated"},
		{Config{Mock: "dgxh999", Simulated: true}, "want one of dgxa100, dgxh100"},
		{Config{Mock: "dgxh100:", Simulated: true}, "want one of"},
		{Config{Mock: "dgxh100", Simulated: true, Helper: "/nowhere"}, "starling-nvml was not found"},
	} {
		if s, err := Open(c.cfg); !errors.Is(err, ErrMock) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, %v; want %q", c.cfg, s, err, c.want)
		}
	}
}

// The real helper with NVIDIA's mocks, through the source that a peer uses.
func TestOpenMock(t *testing.T) {
	t.Parallel()
	path := realHelper(t)
	for _, mock := range []string{"dgxh100", "dgxh200", "dgxb200:mig", "dgxa100:mig"} {
		t.Run(mock, func(t *testing.T) {
			t.Parallel()
			s, err := Open(Config{Simulated: true, Mock: mock, MockSeed: "a peer's key", Helper: path})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			inv, err := s.Inventory(t.Context())
			if err != nil || len(inv.Problems) > 0 || inv.Source != "nvml-mock "+mock || s.Name() != inv.Source {
				t.Fatalf("%+v, %v", inv, err)
			}
			all, sold := 8, 8
			if strings.HasSuffix(mock, MockMIG) {
				all, sold = 11, 10
			}
			if len(inv.Devices) != all || len(inv.Sellable()) != sold {
				t.Errorf("%d devices, %d sold; want %d, %d", len(inv.Devices), len(inv.Sellable()), all, sold)
			}
			var uuids []string
			for _, d := range inv.Devices {
				uuids = append(uuids, d.UUID)
				if !d.Simulated || !strings.HasSuffix(d.Model, " (simulated)") || d.Request() != "" || d.Vendor != NVIDIA {
					t.Errorf("%+v", d)
				}
				if d.Refused != "" && !strings.Contains(d.Refused, "3 slices are sold instead") {
					t.Errorf("refused: %s", d.Refused)
				}
				if class := string(d.Class()); !strings.HasPrefix(class, "gpu/"+mock[3:7]) {
					t.Errorf("%s is of class %s", d.Model, class)
				}
			}
			health, err := s.Health(t.Context(), uuids)
			if err != nil || len(health) != all {
				t.Errorf("health of %d, %v", len(health), err)
			}
		})
	}
}

// The real helper on this machine: whatever it is, the peer gets an answer.
func TestOpenMachine(t *testing.T) {
	t.Parallel()
	s, err := Open(Config{Helper: realHelper(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	inv, err := s.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", inv)
	for _, d := range inv.Devices {
		if d.Simulated {
			t.Errorf("%+v", d)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Inventory(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("an inventory that was cancelled: %v", err)
	}
}

func TestNone(t *testing.T) {
	t.Parallel()
	var s Source = None{}
	inv, err := s.Inventory(t.Context())
	if err != nil || inv.Devices == nil || len(inv.Sellable()) != 0 || inv.Source != "none" || s.Close() != nil {
		t.Errorf("%+v, %v", inv, err)
	}
	if h, err := s.Health(t.Context(), []string{uuidA}); err != nil || len(h) != 0 {
		t.Errorf("%v, %v", h, err)
	}
	if got := sample(0).Request(); got != uuidA {
		t.Errorf("an engine is asked for %q", got)
	}
}
