package nvml

import (
	"os"
	"os/exec"
	"testing"
)

// The tests of this package need cgo and the tag nvml. A plain `go test ./...` has neither, so it runs them from here.
func TestWithCgo(t *testing.T) {
	t.Parallel()
	if built {
		t.Skip("these tests were built with cgo and the tag nvml: they run beside this one")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler: NVIDIA's library and its mocks are not tested")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command: this test was built elsewhere")
	}
	cmd := exec.CommandContext(t.Context(), goTool, "test", "-trimpath", "-tags", "nvml", "-timeout", "5m", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g -Wno-deprecated-declarations", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
