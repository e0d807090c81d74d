package data

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/files/s3/s3test"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/scenarios"
)

// world is a network, the servers of its jobs' files, and the job's program.
type world struct {
	*servers
	s3      *s3test.Server
	net     *testnet.Network
	binary  string
	program string // prints the SHA-256 of its inputs and copies them to its output
}

// stepTime bounds one step; nothing is measured by it.
const stepTime = 2 * time.Minute

// TestData runs the scenario.
func TestData(t *testing.T) {
	t.Parallel()
	w := &world{servers: newServers(t), s3: s3test.Start(t, true), binary: filepath.Join(t.TempDir(), "starling")}
	w.program = filepath.Join(t.TempDir(), "sum.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", w.binary,
		"github.com/starling-network/starling/cmd/starling")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	err := testnet.Compile(t.Context(), "github.com/starling-network/starling/testnet/jobs/sum", w.program)
	if err != nil {
		t.Fatal(err)
	}
	w.net, err = testnet.Start(t.Context(), testnet.Options{
		Dir: filepath.Join(t.TempDir(), "net"), Binary: w.binary, Providers: 2, Buyers: 1, Free: true, Say: t.Logf,
		Config: "inputs: {hosts: [" + strconv.Quote(strings.TrimPrefix(w.URL, "https://")) + "]}",
		Env:    []string{"SSL_CERT_FILE=" + w.roots},
		Unit:   config.Unit{MilliCPU: 1000, MemoryMiB: 256, DiskMiB: 64},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.net.Stop(); err != nil {
			t.Error(err)
		}
	})
	rows, err := scenarios.Play(t.Context(), scenarios.Options{Say: t.Logf}, stepTime, w.steps())
	if err != nil {
		t.Error(err)
	}
	for _, r := range rows {
		if r.Err != nil {
			t.Errorf("%s: %v", r.What, r.Err)
		}
	}
}

func (w *world) steps() []scenarios.Step {
	steps := []scenarios.Step{
		{What: "https: four ranks, one read for each provider", Run: func(ctx context.Context) (string, error) {
			return w.reads(ctx, 2, w.web("big"))
		}},
		{What: "https: a second job, no read", Run: func(ctx context.Context) (string, error) {
			return w.reads(ctx, 0, w.web("big"))
		}},
		{What: "hf: a file that the providers have under another name", Run: func(ctx context.Context) (string, error) {
			return w.reads(ctx, 0, "hf://acme/model/model.bin:/in/big")
		}},
		{What: "ipfs: a file through the buyer's gateway", Run: func(ctx context.Context) (string, error) {
			return w.sums(ctx, sumOf(w.block), "ipfs://"+w.cid+":/in/block")
		}},
		{What: "s3: a folder in, a folder out", Run: w.folder},
		{What: "file: a directory in, a directory out", Run: w.directory},
	}
	for _, c := range []struct{ name, complaint string }{
		{"wrong", "SHA-256 mismatch"}, {"endless", "too large"}, {"short", "cannot be read"}, {"inside", "cannot be read"},
	} {
		steps = append(steps, scenarios.Step{What: "https, refused: " + c.name,
			Run: func(ctx context.Context) (string, error) { return w.refused(ctx, c.name, c.complaint) }})
	}
	return steps
}

// web is an input of the web server, with the SHA-256 of big.
func (w *world) web(name string) string {
	return w.URL + "/files/" + name + "#sha256=" + sumOf(w.big) + ":/in/big"
}

// run runs the program on the network. A nonzero exit code is not an error.
func (w *world) run(ctx context.Context, args ...string) (scenarios.Said, error) {
	args = slices.Concat([]string{"--home", w.net.Buyers()[0].Home, "run", "--retries", "0"}, args)
	cmd := exec.CommandContext(ctx, w.binary, args...)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+w.roots, "HF_ENDPOINT="+w.URL, "IPFS_GATEWAY="+w.URL)
	for _, name := range []string{
		"AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CA_BUNDLE",
	} {
		cmd.Env = append(cmd.Env, name+"="+w.s3.Env(name))
	}
	return scenarios.Command{Cmd: cmd}.Run()
}

// sums runs the program on one input and returns its output, which must be the SHA-256.
func (w *world) sums(ctx context.Context, sum, input string, args ...string) (string, error) {
	s, err := w.run(ctx, slices.Concat([]string{"-i", input}, args, []string{w.program, "--", "/in"})...)
	if err == nil && (s.Code != 0 || !strings.Contains(s.Out, sum+"  /in/")) {
		err = fmt.Errorf("want SHA-256 %s: %v", sum, s)
	}
	return strings.TrimSpace(s.Out), err
}

// reads runs four ranks on big, on both providers. They read the web's copy at most most times.
func (w *world) reads(ctx context.Context, most int, input string) (string, error) {
	out, err := w.sums(ctx, sumOf(w.big), input, "-n", "4", "--spread", "pack")
	n, ranks := w.read(), strings.Count(out, sumOf(w.big))
	if err == nil && (n > most || ranks != 4) {
		err = fmt.Errorf("%d reads and %d ranks, want at most %d, and 4", n, ranks, most)
	}
	return fmt.Sprintf("%d reads of %d bytes for %d ranks", n, len(w.big), ranks), err
}

// refused runs a job with a file of a server that lies. Its program must not start. The complaint is a part of the
// reason.
func (w *world) refused(ctx context.Context, name, complaint string) (string, error) {
	s, err := w.run(ctx, "-i", strings.Replace(w.web(name), sumOf(w.big), sumOf(w.big[1:]), 1), w.program, "--", "/in")
	if err == nil && (s.Code == 0 || s.Out != "" || !strings.Contains(s.Err, complaint)) {
		err = fmt.Errorf("want a failure with %q, and no output: %v", complaint, s)
	}
	for line := range strings.Lines(s.Err) {
		if strings.HasPrefix(line, "starling: ") {
			return strings.TrimSpace(line), err
		}
	}
	return "", errors.Join(err, fmt.Errorf("no reason: %v", s))
}

// files are those of a folder, by their names.
var files = map[string]string{"a.txt": "a", "deep/b c.bin": "b\x00", "empty": ""}

func writeFiles(dir string) error {
	for name, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// compare checks that a folder has the files, and no others.
func compare(dir string) error {
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		got[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err == nil && !maps.Equal(got, files) {
		err = fmt.Errorf("%s: got %q, want %q", dir, got, files)
	}
	return err
}

// folder copies a folder of S3 to another.
func (w *world) folder(ctx context.Context) (string, error) {
	if err := writeFiles(filepath.Join(w.s3.Dir, "in")); err != nil {
		return "", err
	}
	s, err := w.run(ctx, "-i", "s3://bucket/in/:/in", "--out", "/out", "--save", "s3://bucket/results", w.program, "--",
		"/in", "/out")
	if err == nil && s.Code != 0 {
		err = fmt.Errorf("want success: %v", s)
	}
	if err == nil {
		err = compare(filepath.Join(w.s3.Dir, "results", "out"))
	}
	return fmt.Sprintf("%d objects, as they were", len(files)), err
}

// directory copies a directory of this machine to another.
func (w *world) directory(ctx context.Context) (string, error) {
	dir := filepath.Dir(w.program)
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := writeFiles(from); err != nil {
		return "", err
	}
	s, err := w.run(ctx, "-i", from+":/in", "--out", "/out", "--save", to, w.program, "--", "/in", "/out")
	if err == nil && s.Code != 0 {
		err = fmt.Errorf("want success: %v", s)
	}
	if err == nil {
		err = compare(filepath.Join(to, "out"))
	}
	return fmt.Sprintf("%d files, as they were", len(files)), err
}
