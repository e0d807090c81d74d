package runtime

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// MaxArgs bounds the number of arguments.
	MaxArgs = 1024
	// MaxMounts bounds the number of mounts.
	MaxMounts = 64
	// MaxArgBytes bounds arguments and environment together.
	MaxArgBytes = 128 << 10
	// MaxWallTime is the longest limit on wall time.
	MaxWallTime = 366 * 24 * time.Hour

	maxPath = 4096
)

var (
	idPattern  = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)
	envPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,255}$`)
)

func validID(id string) bool { return idPattern.MatchString(id) }

// Check holds the spec to every rule that needs no look at the disk. Its errors are *SpecError.
func (s Spec) Check() error {
	if !validID(s.ID) {
		return &SpecError{"ID", fmt.Sprintf("%q is not 1 to 128 of [A-Za-z0-9._-]", s.ID)}
	}
	if s.Module == "" || len(s.Module) > maxPath || !clean(s.Module) {
		return &SpecError{"Module", "names no program"}
	}
	if err := checkHostPath("Dir", s.Dir); err != nil {
		return err
	}
	if err := s.checkArgs(); err != nil {
		return err
	}
	if s.Limits.WallTime < 0 || s.Limits.WallTime > MaxWallTime {
		return &SpecError{"Limits.WallTime", fmt.Sprintf("%v is not within 0 and %v", s.Limits.WallTime, MaxWallTime)}
	}
	return s.checkMounts()
}

func (s Spec) checkArgs() error {
	if len(s.Args) > MaxArgs {
		return &SpecError{"Args", fmt.Sprintf("%d arguments, at most %d", len(s.Args), MaxArgs)}
	}
	total := 0
	for i, a := range s.Args {
		if !clean(a) {
			return &SpecError{fmt.Sprintf("Args[%d]", i), "is not text without NUL"}
		}
		total += len(a) + 1
	}
	for k, v := range s.Env {
		if !envPattern.MatchString(k) {
			return &SpecError{"Env", fmt.Sprintf("%q is not a variable name", k)}
		}
		if !clean(v) {
			return &SpecError{"Env", fmt.Sprintf("%s is not text without NUL", k)}
		}
		total += len(k) + len(v) + 2
	}
	if total > MaxArgBytes {
		return &SpecError{"Args", fmt.Sprintf("arguments and environment have %d bytes, at most %d", total, MaxArgBytes)}
	}
	return nil
}

func (s Spec) checkMounts() error {
	if len(s.Mounts) > MaxMounts {
		return &SpecError{"Mounts", fmt.Sprintf("%d mounts, at most %d", len(s.Mounts), MaxMounts)}
	}
	for i, m := range s.Mounts {
		field := fmt.Sprintf("Mounts[%d]", i)
		if err := checkHostPath(field+".Host", m.Host); err != nil {
			return err
		}
		if within(s.Dir, m.Host) || within(m.Host, s.Dir) {
			return &SpecError{field + ".Host", "and Dir lie in one another"}
		}
		if !clean(m.Guest) || len(m.Guest) > maxPath || !path.IsAbs(m.Guest) || path.Clean(m.Guest) != m.Guest || m.Guest == "/" {
			return &SpecError{field + ".Guest", fmt.Sprintf("%q is not a clean absolute path below /", m.Guest)}
		}
		if within(m.Guest, ControlDir) || within(ControlDir, m.Guest) {
			return &SpecError{field + ".Guest", ControlDir + " belongs to the runtime"}
		}
		for _, o := range s.Mounts[:i] {
			if within(m.Guest, o.Guest) || within(o.Guest, m.Guest) {
				return &SpecError{field + ".Guest", fmt.Sprintf("%s and %s lie in one another", m.Guest, o.Guest)}
			}
		}
	}
	return nil
}

func checkHostPath(field, p string) error {
	if !clean(p) || len(p) > maxPath || !filepath.IsAbs(p) || filepath.Clean(p) != p || filepath.Dir(p) == p {
		return &SpecError{field, fmt.Sprintf("%q is not a clean absolute path below the root", p)}
	}
	return nil
}

// within says whether p is dir or lies in it; both are clean and absolute.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(filepath.ToSlash(dir), "/")+"/")
}

// clean says that s can pass through a C string and JSON unchanged.
func clean(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
