package child

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Find returns the path of a helper program: the configured one, the one in the folder of the running program, or the
// one on the PATH. The error wraps missing.
func Find(configured, name string, missing error) (string, error) {
	if configured != "" {
		if err := executable(configured); err != nil {
			return "", fmt.Errorf("%w: %w", missing, err)
		}
		return configured, nil
	}
	beside := "the running program"
	if self, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(self); err == nil {
			self = real
		}
		beside = self
		path := filepath.Join(filepath.Dir(self), name)
		if executable(path) == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w beside %s or on the PATH", missing, beside)
	}
	return path, nil
}

func executable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s is not a program", path)
	}
	return nil
}

// Tidy cuts text and replaces characters that do not print, for errors and problems that quote others.
func Tidy(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = text[:most] + "..."
	}
	return text
}
