package rundir

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-network/starling/node/runtime"
)

// OverlaySource is where a file of the overlay lies on this machine.
func OverlaySource(dir, path string) string {
	if filepath.Dir(path) == runtime.OverlayDir {
		return filepath.Join(dir, FilesDir, filepath.Base(runtime.OverlayDir), filepath.Base(path))
	}
	return filepath.Join(dir, FilesDir, filepath.Base(path))
}

// prepareOverlay makes the additional directories and files of an execution with an overlay.
func prepareOverlay(s runtime.Spec) error {
	for _, dir := range []string{NetDir, FilesDir, filepath.Join(FilesDir, filepath.Base(runtime.OverlayDir))} {
		dir = filepath.Join(s.Dir, dir)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		// regardless of umask: the container's user may be another one
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	if s.Overlay.Alone {
		return WriteOverlay(s.Dir, s.Overlay.AllFiles())
	}
	agent := filepath.Join(s.Dir, ControlDir, filepath.Base(runtime.AgentPath))
	if err := os.WriteFile(agent, nil, 0o644); err != nil { // mount point of the binary
		return err
	}
	return WriteOverlay(s.Dir, s.Overlay.AllFiles())
}

// WriteOverlay writes files of an overlay. Those in OverlayDir are replaced as a whole. The others are mounted one by
// one, so they are rewritten in place: a reader at that moment can see part of each, never nothing.
func WriteOverlay(dir string, files map[string][]byte) error {
	for path, content := range files {
		at := OverlaySource(dir, path)
		err := writeInPlace(at, content)
		if filepath.Dir(path) == runtime.OverlayDir {
			tmp := filepath.Join(dir, FilesDir, ".new")
			if err = writeInPlace(tmp, content); err == nil {
				err = os.Rename(tmp, at)
			}
		}
		if err != nil {
			return fmt.Errorf("writing %s of the overlay: %w", path, err)
		}
	}
	return nil
}

func writeInPlace(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(content)))
}
