//go:build linux

// Package images makes the images for tests of clusters: Debian with Python, and above it Ray or Dask from PyPI, or
// Debian's PyTorch, or Debian's Open MPI. It makes them on this machine from packages, without a registry (script
// `build` beside this file), and keeps them in the user's cache, by a hash of their parts:
//
//	<cache>/starling/images/<key>/{base,ray,dask,torch,mpi}.tar    one layer each
package images

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/starling-network/starling/testnet/engine"
)

// Name of an image.
type Name string

// The images: each has Python 3.11 and the program of its name.
const (
	Ray   Name = "ray"
	Dask  Name = "dask"
	Torch Name = "torch" // with torchrun
	MPI   Name = "mpi"   // Open MPI and mpi4py
)

const base Name = "base"

var names = []Name{Ray, Dask, Torch, MPI}

// ErrUnavailable means that the images cannot be made on this machine; its text has the reason.
var ErrUnavailable = errors.New("images of Ray, Dask, PyTorch and MPI cannot be made here")

// programs are the script's tools beside a shell, with their packages.
var programs = []string{"bash", "apt-get", "apt-cache", "dpkg-deb", "tar", "awk"}

// keep is the time for which images of other packages stay in the cache: a concurrent test may still read them.
const keep = 24 * time.Hour

//go:embed build
var script []byte

//go:embed ray.txt
var rayPackages []byte

//go:embed dask.txt
var daskPackages []byte

// Set are the images of one machine.
type Set struct {
	dir string
}

// Make finds all or the named images in the cache, and makes missing ones, which takes minutes. The error is
// ErrUnavailable if that is impossible.
func Make(ctx context.Context, say func(format string, args ...any), wanted ...Name) (*Set, error) {
	if len(wanted) == 0 {
		wanted = names
	}
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("%w: Ray is pinned for amd64, and this is %s", ErrUnavailable, runtime.GOARCH)
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w: %s is missing: they are made of Debian's packages", ErrUnavailable, program)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	root := filepath.Join(cache, "starling", "images")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	// a later process finds the images of the first one
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("waiting for another process that makes images: %w", err)
	}
	work, err := os.MkdirTemp(root, "new-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if err := errors.Join(os.WriteFile(filepath.Join(work, "build"), script, 0o700),
		os.WriteFile(filepath.Join(work, "ray.txt"), rayPackages, 0o600),
		os.WriteFile(filepath.Join(work, "dask.txt"), daskPackages, 0o600)); err != nil {
		return nil, err
	}
	key, err := build(ctx, work, "-key")
	if err != nil {
		return nil, err
	}
	s := &Set{dir: filepath.Join(root, strings.TrimSpace(key))}
	missing := s.missing(wanted)
	if len(missing) == 0 {
		return s, os.Chtimes(s.dir, time.Time{}, time.Now())
	}
	say("making images (%s) from Debian's and PyPI's packages; they stay in %s", strings.Join(missing, ", "), root)
	began := time.Now()
	out := filepath.Join(work, "out")
	if _, err := build(ctx, work, append([]string{out}, missing...)...); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range append(missing, string(base)) { // the same base as before, if there was one
		if err := os.Rename(filepath.Join(out, name+".tar"), s.path(Name(name))); err != nil {
			return nil, err
		}
	}
	say("images made in %v", time.Since(began).Round(time.Second))
	return s, clean(root)
}

// build runs the script and returns its output. A failure of apt or pip is not a failure of the tested code.
func build(ctx context.Context, work string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(work, "build"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "TMPDIR="+work, "LC_ALL=C.UTF-8")
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		said := errs.Bytes()
		return "", fmt.Errorf("%w: %w\n%s", ErrUnavailable, err, said[max(0, len(said)-2000):])
	}
	return out.String(), nil
}

// clean removes the remains of older packages and interrupted runs.
func clean(root string) error {
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		if info, serr := e.Info(); serr == nil && e.IsDir() && time.Since(info.ModTime()) > keep {
			err = errors.Join(err, os.RemoveAll(filepath.Join(root, e.Name())))
		}
	}
	return err
}

// missing returns the images that are not in the cache.
func (s *Set) missing(wanted []Name) (out []string) {
	_, noBase := os.Stat(s.path(base))
	for _, n := range wanted {
		if _, err := os.Stat(s.path(n)); err != nil || noBase != nil {
			out = append(out, string(n))
		}
	}
	return out
}

func (s *Set) path(n Name) string { return filepath.Join(s.dir, string(n)+".tar") }

// Push puts an image into a registry, with files above it, and returns its name, by digest.
func (s *Set) Push(r *engine.Registry, n Name, files ...engine.File) (string, error) {
	var layers []*engine.Layer
	for _, part := range []Name{base, n} {
		l, err := engine.OpenLayer(s.path(part))
		if err != nil {
			return "", err
		}
		layers = append(layers, l)
	}
	return r.PushLayers(string(n), func(cfg *v1.ConfigFile) {
		cfg.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
			"HOME=/root"}
		cfg.Config.Cmd = []string{"/bin/bash"}
		cfg.Config.WorkingDir = "/root"
	}, layers, files...)
}

// Unpack extracts an image's file system into a directory, to run its programs outside any engine. It needs root.
func (s *Set) Unpack(ctx context.Context, n Name, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, part := range []Name{base, n} {
		cmd := exec.CommandContext(ctx, "tar", "-x", "--keep-directory-symlink", "-C", dir, "-f", s.path(part))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("unpacking %s: %w: %s", part, err, out)
		}
	}
	return nil
}
