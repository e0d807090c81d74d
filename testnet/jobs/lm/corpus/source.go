package corpus

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Source finds the source text of the Go installation on this machine: $GOROOT/src, or that of the go command on the
// path.
func Source(ctx context.Context) (dir string, err error) {
	root := os.Getenv("GOROOT")
	if root == "" {
		out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return "", fmt.Errorf("finding the Go installation: running go env GOROOT: %w", err)
		}
		root = strings.TrimSpace(string(out))
	}
	dir = filepath.Join(root, "src")
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("finding the Go installation: %s does not exist; install Go with its source text", dir)
	}
	return dir, nil
}
