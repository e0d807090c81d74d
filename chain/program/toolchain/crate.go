package toolchain

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Files committed beside the source.
const (
	File        = "starling.so"
	SumFile     = File + ".sha256"    // as sha256sum -c reads it
	VersionFile = File + ".toolchain" // the compiler: Version and a newline
)

// Crate is the folder of the program's source in the module around the working folder.
func Crate(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the source: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "chain", "program"), nil
}

// Write puts the built program into the crate's folder, with its SHA-256 and the compiler's version.
func (t *Toolchain) Write(crate string, so []byte) error {
	return errors.Join(
		os.WriteFile(filepath.Join(crate, File), so, 0o644),
		os.WriteFile(filepath.Join(crate, SumFile), []byte(Sum(so)), 0o644),
		os.WriteFile(filepath.Join(crate, VersionFile), []byte(t.Version()+"\n"), 0o644),
	)
}

// Sum is the line of SumFile.
func Sum(so []byte) string { return fmt.Sprintf("%x  %s\n", sha256.Sum256(so), File) }
