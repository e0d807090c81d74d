package docker

import (
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/starling-network/starling/node/runtime/docker/guard"
)

// guardBinary finds the binary that is mounted into containers. It refuses a binary that cannot run there.
func guardBinary(path string, log *slog.Logger) (string, error) {
	if path == "" {
		self, err := ownBinary()
		if err != nil {
			return "", err
		}
		path = self
		small := beside(self)
		if err := sameBuild(self, small); err == nil {
			path = small
		} else if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("starling-guard is not used: containers start more slowly", "path", small, "reason", err)
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding guard: %w", err)
	}
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading guard: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s is dynamically linked and would not run in a container: "+
				"build it with CGO_ENABLED=0", path)
		}
	}
	return path, nil
}

// ownBinary returns the path of the program of this process, without links.
func ownBinary() (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", fmt.Errorf("finding own binary: %w", err)
	}
	return self, nil
}

// beside returns the path of starling-guard in the folder of another program.
func beside(program string) string { return filepath.Join(filepath.Dir(program), guard.Program) }

// sameBuild reports whether two programs were built from one state of the source. Peer and guard exchange messages
// without a version. It returns an error that wraps fs.ErrNotExist if there is no second one.
func sameBuild(self, other string) error {
	if _, err := os.Stat(other); err != nil {
		return err
	}
	ours, err := buildinfo.ReadFile(self)
	if err != nil {
		return fmt.Errorf("reading build of %s: %w", self, err)
	}
	theirs, err := buildinfo.ReadFile(other)
	if err != nil {
		return fmt.Errorf("reading build of %s: %w", other, err)
	}
	if got, want := buildOf(theirs), buildOf(ours); got != want {
		return fmt.Errorf("%s: another build: got %s, want %s", other, got, want)
	}
	return nil
}

// buildOf is the state of the source that a program was built from.
func buildOf(b *debug.BuildInfo) string {
	text := b.Main.Version
	for _, name := range []string{"vcs.revision", "vcs.modified"} {
		i := slices.IndexFunc(b.Settings, func(s debug.BuildSetting) bool { return s.Key == name })
		if i >= 0 {
			text += " " + b.Settings[i].Value
		}
	}
	return text
}
