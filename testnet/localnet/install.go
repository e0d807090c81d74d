package localnet

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	//go:embed package.json
	packageJSON []byte
	//go:embed package-lock.json
	packageLock []byte
	//go:embed host.js
	hostScript []byte
)

// runtimeAddon is Surfpool.
var runtimeAddon = Addon{Name: "surfpool-1.5.0", PackageJSON: packageJSON, PackageLock: packageLock,
	File: "node_modules/@solana/surfpool-linux-x64-gnu/surfpool-sdk.linux-x64-gnu.node"}

// CacheDir is where the runtime is installed, once for all networks of the user:
// $XDG_CACHE_HOME/starling/surfpool-VERSION.
func CacheDir() (string, error) { return runtimeAddon.dir() }

// Installed reports whether the runtime is in the cache.
func Installed() bool { return runtimeAddon.Installed() }

// Install installs the runtime into the cache; see [Addon.Install].
func Install(ctx context.Context) (string, error) { return runtimeAddon.Install(ctx) }

// Addon is a set of Node packages for tests and local networks: a Solana runtime, or the build tools of the TypeScript
// client. Packages are pinned by version and integrity, and come from npm's configured registry.
type Addon struct {
	Name                     string // of its folder in the cache, with the version
	PackageJSON, PackageLock []byte
	File                     string // file in the folder that marks a complete installation
}

func (a Addon) dir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w", err)
	}
	return filepath.Join(base, "starling", a.Name), nil
}

// Installed reports whether it is in the cache.
func (a Addon) Installed() bool {
	dir, err := a.dir()
	return err == nil && a.installed(dir)
}

// installed reports whether the last file of an installation exists.
func (a Addon) installed(dir string) bool {
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil || string(lock) != string(a.PackageLock) {
		return false
	}
	_, err = os.Stat(filepath.Join(dir, a.File))
	return err == nil
}

// Install installs the packages into the cache with npm, unless they are there, and returns the folder. Concurrent
// processes wait for each other. Errors: ErrPlatform, ErrTools, or npm's.
func (a Addon) Install(ctx context.Context) (string, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("%s/%s: %w", runtime.GOOS, runtime.GOARCH, ErrPlatform)
	}
	dir, err := a.dir()
	if err != nil || a.installed(dir) {
		return dir, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("making the cache folder: %w", err)
	}
	unlock, err := lockFile(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if a.installed(dir) {
		return dir, nil
	}
	if err := a.install(ctx, dir); err != nil {
		return "", fmt.Errorf("installing %s: %w", a.Name, err)
	}
	return dir, nil
}

// install builds the folder under another name and renames it.
func (a Addon) install(ctx context.Context, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return ErrTools
	}
	next, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(next)
	err = errors.Join(os.WriteFile(filepath.Join(next, "package.json"), a.PackageJSON, 0o644),
		os.WriteFile(filepath.Join(next, "package-lock.json"), a.PackageLock, 0o644),
		os.Chmod(next, 0o755))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = next
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, lastLines(out))
	}
	if _, err := os.Stat(filepath.Join(next, a.File)); err != nil {
		return fmt.Errorf("npm omitted the package, as it does on a platform without a build: %w", ErrPlatform)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(next, dir)
}

// lastLines is the end of a program's output, in one line of bounded length.
func lastLines(out []byte) string {
	text := strings.Join(strings.Fields(string(out)), " ")
	return text[max(0, len(text)-600):]
}

// lockFile waits for the lock until ctx ends, and returns the function that releases it. The lock of a dead process is
// released too.
func lockFile(ctx context.Context, path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the install lock: %w", err)
	}
	taken := make(chan error, 1)
	go func() { taken <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
	select {
	case err := <-taken:
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("taking the install lock: %w", err)
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		go func() { <-taken; f.Close() }() // release the lock if it is acquired later
		return nil, ctx.Err()
	}
}

// NodePath finds Node.js and checks its version. It returns ErrTools if there is none or it is too old.
func NodePath(ctx context.Context) (path string, err error) {
	path, err = exec.LookPath("node")
	if err != nil {
		return "", ErrTools
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	var major int
	if _, scan := fmt.Sscanf(string(out), "v%d.", &major); err != nil || scan != nil || major < 18 {
		return "", fmt.Errorf("%s is %s: %w", path, strings.TrimSpace(string(out)), ErrTools)
	}
	return path, nil
}
