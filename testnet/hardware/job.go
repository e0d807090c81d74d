package hardware

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/device/cuda"
	"github.com/starling-network/starling/testnet"
)

// glibc is an image with the libraries that the driver needs.
const glibc = "docker.io/library/debian:stable-slim"

// hook returns an error if this machine's container engine cannot give GPUs to containers.
func hook(ctx context.Context) error {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, docker, "info", "--format", "{{json .}}").Output()
	switch {
	case err != nil:
		return fmt.Errorf("no container engine answers: %w", err)
	case !strings.Contains(string(out), "nvidia"):
		return errors.New("the container engine lacks NVIDIA's hook (Container Toolkit)")
	}
	return nil
}

// job has a buyer on a free network of two peers run a CUDA program on the card, in a container, by `starling run
// --gpus 1`: starling-cuda, which compares the card with the processor. If no engine gives GPUs to containers, the same
// program runs beside the peers with the environment of the container, and the report notes it.
func (b *bench) job(ctx context.Context) (_ string, err error) {
	without := hook(ctx)
	if !b.report.GPU {
		without = errors.New("there is no GPU to give to a container")
	}
	if without != nil {
		cmd := exec.CommandContext(ctx, b.helper, "--self-test", "--quick")
		cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+b.UUID, "NVIDIA_VISIBLE_DEVICES="+b.UUID)
		out, err := cmd.CombinedOutput()
		how := fmt.Sprintf("NOT by starling run, and outside a container (%v): "+
			"starling-cuda --self-test --quick on this machine, restricted to the card",
			without)
		return b.ran(how, string(out), err)
	}
	image, err := digest(ctx)
	if err != nil {
		return "", err
	}
	n, err := testnet.Start(ctx, testnet.Options{
		Dir: filepath.Join(b.Dir, "net"), Binary: b.Starling, Providers: 1, Buyers: 1, Units: 1, Free: true, Say: b.Say,
		GPUs: func(int) testnet.GPUs { return testnet.GPUs{Devices: "device=" + b.UUID} },
		// a CUDA context takes hundreds of MiB of the host's memory
		Unit: config.Unit{MilliCPU: 1000, MemoryMiB: 4096, DiskMiB: 4096},
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	const in = "/in/" + cuda.HelperName
	out, err := exec.CommandContext(ctx, b.Starling, "--home", n.Buyers()[0].Home, "run", "--gpus", "1", "-i",
		b.helper+":"+in, image, "--", "/lib64/ld-linux-x86-64.so.2", in, "--self-test", "--quick").CombinedOutput()
	return b.ran("starling run --gpus 1: starling-cuda --self-test --quick in a container", string(out), err)
}

// ran records the program's output.
func (b *bench) ran(how, said string, err error) (string, error) {
	said = strings.TrimSpace(said)
	if err == nil && !strings.Contains(said, "same ") {
		err = errors.New("the program compared nothing")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", how, err, said)
	}
	b.report.Job = &Job{How: how, Said: said}
	return how, nil
}

// digest pulls an image and returns its name with a digest.
func digest(ctx context.Context) (string, error) {
	if out, err := exec.CommandContext(ctx, "docker", "pull", "--quiet", glibc).CombinedOutput(); err != nil {
		return "", fmt.Errorf("pulling %s: %w: %s", glibc, err, out)
	}
	out, err := exec.CommandContext(ctx, "docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}",
		glibc).Output()
	if err != nil {
		return "", fmt.Errorf("the digest of %s: %w", glibc, err)
	}
	return strings.TrimSpace(string(out)), nil
}
