//go:build linux

package images

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/starling-network/starling/testnet/engine"
)

// An engine pulls the images by digest and runs what is in them.
func TestImages(t *testing.T) {
	t.Parallel()
	if os.Getenv("STARLING_DOCKER") != "1" {
		t.Skip("tests of the container engine run with STARLING_DOCKER=1, as make test sets it")
	}
	if err := engine.Available(); err != nil {
		t.Skip(err)
	}
	set, err := Make(t.Context(), t.Logf)
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Start(t.Context(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	registry, err := engine.NewRegistry(e.Net)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = registry.Close() })
	for _, c := range []struct {
		image   Name
		command []string
		want    string
	}{
		{Ray, []string{"ray", "--version"}, "ray, version 2.52.1"},
		{Torch, []string{"python3", "/try.py"}, "gloo True sum 3.0"},
		{MPI, []string{"python3", "-c", "from mpi4py import MPI; print('ranks', MPI.COMM_WORLD.size)"}, "ranks 1"},
	} {
		ref, err := set.Push(registry, c.image, engine.File{Path: "/try.py", Text: sums})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "docker", append([]string{"-H", e.Host(), "run", "--rm", "--network", "none", ref}, c.command...)...)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %q: %v", c.image, out[max(0, len(out)-2000):], err)
		}
	}
	if again, err := Make(t.Context(), func(string, ...any) { t.Error("made again") }); err != nil || *again != *set {
		t.Errorf("the second time: %+v, %v", again, err)
	}
}

const sums = `
import torch
import torch.distributed.run

print("gloo", torch.distributed.is_gloo_available(), "sum", torch.tensor([1.0, 2.0]).sum().item())
`
