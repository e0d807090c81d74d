//go:build linux

package engine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Build compiles a Go package to a static program for this machine, which needs no files of its image. Tests of many
// packages share programs: each program is linked once, cached, and copied while it is up to date.
func Build(out, pkg string) error {
	kept, err := keptAt(pkg)
	if err != nil {
		return fmt.Errorf("building %s: %w", pkg, err)
	}
	lock, err := os.OpenFile(kept+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("building %s: %w", pkg, err)
	}
	defer lock.Close() // and with it the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("building %s: locking %s: %w", pkg, lock.Name(), err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", kept, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, said)
	}
	if err := copyProgram(out, kept); err != nil {
		return fmt.Errorf("building %s: %w", pkg, err)
	}
	return nil
}

// keptAt returns the path of a package's program in the cache. All checkouts share it: Go rebuilds an outdated program.
func keptAt(pkg string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "starling", "programs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	key := pkg
	if strings.HasPrefix(pkg, ".") {
		here, err := os.Getwd()
		if err != nil {
			return "", err
		}
		key = filepath.Join(here, pkg)
	}
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(dir, fmt.Sprintf("%s-%x", path.Base(key), sum[:4])), nil
}

func copyProgram(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
