//go:build linux

package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/testnet/engine"
	"github.com/starling-network/starling/testnet/scenarios"
)

// badInput is an input that must fail, with starling's expected error text.
type badInput struct {
	what string
	args []string               // of starling run, before the image; or
	file string                 // lines of a job file below spec
	make func() (string, error) // makes the image; nil for the usual image
	prog []string               // arguments of the program
	code int
	says []string
}

// badInputs is the part of the scenario with inputs that must fail and programs that misbehave.
type badInputs struct{ *world }

func (w badInputs) bad() []badInput {
	other := map[string]string{"amd64": "arm64"}[runtime.GOARCH]
	if other == "" {
		other = "amd64"
	}
	push := func(repo string, change func(*v1.ConfigFile)) func() (string, error) {
		return func() (string, error) {
			return w.registry.Push(repo, change, engine.File{Path: "/box", Text: repo})
		}
	}
	named := func(image string) func() (string, error) { return func() (string, error) { return image, nil } }
	return []badInput{
		{what: "privileged", args: []string{"--privileged"}, code: 2,
			says: []string{"privileged containers are not possible"}},
		{what: "privileged, in a job file", file: "privileged: true", code: 2,
			says: []string{"spec.privileged", "privileged containers are not possible"}},
		{what: "a host mount", args: []string{"-v", "/etc:/host"}, code: 2,
			says: []string{"mounts of the provider's own files are not possible"}},
		{what: "a host mount, in a job file", file: "hostMounts: [{src: /etc, dst: /host}]", code: 2,
			says: []string{"spec.hostMounts", "mounts of the provider's own files are not possible"}},
		{what: "docker.sock", args: []string{"-v", "/var/run/docker.sock:/var/run/docker.sock"}, code: 2,
			says: []string{"container engine is not given to any program"}},
		{what: "docker.sock, as an input", args: []string{"-i", "/var/run/docker.sock:/data/docker.sock"}, code: 2,
			says: []string{"container engine is not given to any program"}},
		{what: "a device of the machine", args: []string{"--device", "/dev/kvm"}, code: 2,
			says: []string{"devices of the provider's machine cannot be named"}},
		{what: "a GPU by name", args: []string{"--gpus", "device=GPU-unknown"}, code: 2, says: []string{"gpus"}},
		{what: "a GPU of no provider", args: []string{"--gpus", "b300:1", "--queue-timeout", "2s"}, code: 3,
			says: []string{"gpu/b300"}},
		{what: "a missing tag", make: named(w.registry.Addr + "/box:none"), code: 2,
			says: []string{"not found in the registry"}},
		{what: "a missing tag, in a dry run", args: []string{"--dry-run"}, make: named(w.registry.Addr + "/box:none"),
			code: 2, says: []string{"not found in the registry"}},
		{what: "an output outside", args: []string{"--out", "/out/../../etc"}, code: 2,
			says: []string{"not a clean absolute path"}},
		{what: "manifest of another digest", make: push("broken/manifests", nil), code: 2, says: []string{"digest"}},
		{what: "layers of another digest", make: push("broken/layers", nil), code: 2,
			says: []string{"image cannot be run"}},
		{what: "an image for another machine", make: push("other/platform", func(c *v1.ConfigFile) {
			c.Architecture = other
		}), code: 2, says: []string{"linux/" + other}},
		{what: "an unreachable registry", make: named("127.0.0.1:1/box@sha256:" + strings.Repeat("0", 64)),
			code: 6, says: []string{"registry cannot be reached", "127.0.0.1:1"}},
		{what: "a registry that closes the connection", make: push("gone/away", nil), code: 6,
			says: []string{"registry cannot be reached"}},
		{what: "no credentials", make: func() (string, error) {
			return w.registry.Push("private/other", nil, engine.File{Path: "/box", Text: "other"})
		}, code: 2, says: []string{"registry refused the credentials"}},
		{what: "wrong credentials", args: []string{"--registry-auth", engine.User + "=env:WRONG_PASSWORD"},
			make: func() (string, error) {
				return w.registry.Push("private/third", nil, engine.File{Path: "/box", Text: "third"})
			}, code: 2, says: []string{"registry refused the credentials"}},
		{what: "a fork bomb", args: []string{"--entrypoint", "/probe", "--timeout", "5s"}, prog: []string{"forks"},
			code: 124, says: []string{"timeouts.run"}},
		{what: "a disk filler", args: []string{"--entrypoint", "/probe", "--out", "/out"},
			prog: []string{"write", "/out"}, code: 1, says: []string{"disk"}},
	}
}

// try submits the bad input and compares the answer with the expected one.
func (w badInputs) try(ctx context.Context, b badInput) (string, error) {
	image := w.image
	if b.make != nil {
		var err error
		if image, err = b.make(); err != nil {
			return "", err
		}
	}
	args := append([]string{"run", "--wait", "paid", "--max-price", "1", "--budget", "0.1", "--queue-timeout", "2m",
		"--timeout", "5m", "--retries", "1"}, b.args...)
	args = append(append(args, image, "--"), b.prog...)
	if b.file != "" {
		path := filepath.Join(w.Dir, "bad.yaml")
		text := fmt.Sprintf("apiVersion: v1\nkind: Job\nmetadata: {name: bad}\nspec:\n"+
			"  image: %s\n  payment: {maxPrice: 1/unit-hour}\n  %s\n",
			image, b.file)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
		args = []string{"submit", "--wait", "paid", path}
	}
	s, err := w.starling(ctx, args...)
	if err != nil {
		return "", err
	}
	message := message(s.Err)
	for _, want := range b.says {
		if !strings.Contains(message, want) {
			return message, fmt.Errorf("the error lacks %q: %v", want, s)
		}
	}
	if s.Code != b.code {
		return message, fmt.Errorf("exit code %d, want %d: %v", s.Code, b.code, s)
	}
	return fmt.Sprintf("exit code %d: %s", s.Code, message), nil
}

// waysOut runs a container that tries closed addresses.
func (w badInputs) waysOut(ctx context.Context) (string, error) {
	want := []string{cluster.Service.String() + ":53 yes"}
	args := []string{"reach", "+" + cluster.Service.String() + ":53"}
	for _, addr := range []string{"127.0.0.1:22", "169.254.169.254:80", "192.168.0.1:80", "172.17.0.1:22",
		"10.0.0.1:443", "93.184.216.34:25"} {
		args, want = append(args, addr), append(want, addr+" no")
	}
	out, err := w.done(ctx, append([]string{"run", "--network", "internet", "--max-price", "1", "--budget", "0.1",
		"--timeout", "5m", "--entrypoint", "/probe", w.image, "--"}, args...)...)
	if err != nil {
		return "", err
	}
	for _, line := range want {
		if !strings.Contains(out, line) {
			return "", fmt.Errorf("the output lacks %q: %s", line, scenarios.Tail(out))
		}
	}
	return fmt.Sprintf("one address of %d", len(want)), nil
}

// message is starling's last message.
func message(stderr string) string {
	at := strings.LastIndex(stderr, "starling: ")
	if at < 0 {
		return ""
	}
	text, _, _ := strings.Cut(stderr[at+len("starling: "):], "\nhint: ")
	return strings.TrimSpace(text)
}

// links runs a program that leaves links to the provider's files. The buyer must get none of them.
func (w badInputs) links(ctx context.Context) (string, error) {
	dir := filepath.Join(w.Dir, "links")
	s, err := w.starling(ctx, "run", "--wait", "paid", "--max-price", "1", "--budget", "0.1", "--timeout", "5m",
		"--out", "/out", "--save", dir, w.image, "--", "links")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil || s.Code != 1 || !strings.Contains(s.Err, "symbolic link to \"/etc\"") {
		return "", fmt.Errorf("%v", s)
	}
	return fmt.Sprintf("exit code %d: %s", s.Code, message(s.Err)), nil
}

// floodMiB is the size of a log beyond every limit.
const floodMiB = 10 << 10

// floods checks that a log is cut at its limit, without blocking the program and without more bytes on any disk.
func (w badInputs) floods(ctx context.Context) (string, error) {
	out, err := w.done(ctx, "run", "-d", "--max-price", "1", "--budget", "0.1", "--timeout", "5m", w.image, "--",
		"flood", fmt.Sprint(floodMiB))
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(out)
	if _, err := w.done(ctx, "wait", id); err != nil {
		return "", err
	}
	log, err := w.done(ctx, "logs", id)
	if err != nil {
		return "", err
	}
	const most = 64 << 20
	if len(log) > most || !strings.Contains(log[max(0, len(log)-1000):], "cut") {
		return "", fmt.Errorf("a log of %d bytes ends with %q", len(log), scenarios.Tail(log))
	}
	j, err := w.job(ctx, id)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d MiB are kept, the program continued and %s after %v",
		len(log)>>20, j.State, j.Ended.Sub(j.Started).Round(100*time.Millisecond)), nil
}
