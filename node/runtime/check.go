package runtime

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
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

	// MaxGPUs bounds the devices of one execution.
	MaxGPUs = 256
	// MaxSecrets bounds secret files and variables together.
	MaxSecrets = 64
	// MaxSecretBytes bounds their values together.
	MaxSecretBytes = 128 << 10

	maxPath  = 4096
	maxImage = 512
)

var (
	// Lengths are checked separately: a bound in a pattern adds that many states, which are compiled at each start of a
	// program.
	idPattern  = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)
	gpuPattern = regexp.MustCompile(`^[A-Za-z0-9/_-]+$`)
	envPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// imagePattern is the grammar of github.com/distribution/reference; the group is the digest.
	imagePattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(
			`^(?:(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?/)?` +
				`[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*` +
				`(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
	})
)

func validID(id string) bool  { return len(id) <= 128 && idPattern.MatchString(id) }
func validGPU(id string) bool { return len(id) <= 128 && gpuPattern.MatchString(id) }
func validEnv(name string) bool {
	return len(name) <= 256 && envPattern.MatchString(name)
}

// Check holds the spec to every rule that can be checked without the disk. Its errors are *SpecError.
func (s Spec) Check() error {
	if !validID(s.ID) {
		return &SpecError{"ID", fmt.Sprintf("%q is not 1 to 128 of [A-Za-z0-9._-]", s.ID)}
	}
	if err := s.checkProgram(); err != nil {
		return err
	}
	if err := checkHostPath("Dir", s.Dir); err != nil {
		return err
	}
	if s.Layer != "" {
		if err := checkHostPath("Layer", s.Layer); err != nil {
			return err
		}
		if within(s.Dir, s.Layer) || within(s.Layer, s.Dir) {
			return &SpecError{"Layer", "and Dir lie in one another"}
		}
	}
	if err := s.checkArgs(); err != nil {
		return err
	}
	if s.Limits.WallTime < 0 || s.Limits.WallTime > MaxWallTime {
		return &SpecError{"Limits.WallTime", fmt.Sprintf("%v is not within 0 and %v", s.Limits.WallTime, MaxWallTime)}
	}
	if s.User > MaxUser {
		return &SpecError{"User", fmt.Sprintf("%d is more than %d", s.User, MaxUser)}
	}
	if s.Overlay != nil {
		if err := s.Overlay.Check(); err != nil {
			return err
		}
	}
	return s.checkMounts()
}

// checkProgram checks the fields for the program and its devices.
func (s Spec) checkProgram() error {
	if s.Image == "" {
		switch {
		case s.Module == "" || len(s.Module) > maxPath || !clean(s.Module):
			return &SpecError{"Module", "names no program"}
		case len(s.Entrypoint) > 0:
			return &SpecError{"Entrypoint", "only an image has one"}
		case s.WorkDir != "":
			return &SpecError{"WorkDir", "only a container has one"}
		case s.Layer != "":
			return &SpecError{"Layer", "only a container has one"}
		case len(s.GPUs) > 0:
			return &SpecError{"GPUs", "only a container can be given devices"}
		}
		return CheckSecrets(s.Secrets, s.SecretEnv)
	}
	if s.Module != "" {
		return &SpecError{"Image", "and Module are both set"}
	}
	if err := CheckImage(s.Image); err != nil {
		return &SpecError{"Image", err.Error()}
	}
	if s.WorkDir != "" && (!clean(s.WorkDir) || len(s.WorkDir) > maxPath ||
		!path.IsAbs(s.WorkDir) || path.Clean(s.WorkDir) != s.WorkDir) {
		return &SpecError{"WorkDir", fmt.Sprintf("%.80q is not a clean absolute path", s.WorkDir)}
	}
	if len(s.GPUs) > MaxGPUs {
		return &SpecError{"GPUs", fmt.Sprintf("%d devices, at most %d", len(s.GPUs), MaxGPUs)}
	}
	for i, g := range s.GPUs {
		if !validGPU(g) {
			return &SpecError{fmt.Sprintf("GPUs[%d]", i), fmt.Sprintf("%.80q is not a device", g)}
		}
	}
	return CheckSecrets(s.Secrets, s.SecretEnv)
}

// CheckSecrets checks future values of Spec.Secrets and Spec.SecretEnv. Its errors are *SpecError and contain no value.
func CheckSecrets(files map[string][]byte, env map[string]string) error {
	if len(files)+len(env) > MaxSecrets {
		return &SpecError{"Secrets", fmt.Sprintf("%d secrets, at most %d", len(files)+len(env), MaxSecrets)}
	}
	total := 0
	for name, value := range files {
		if !validID(name) {
			return &SpecError{"Secrets", fmt.Sprintf("%.80q is not a name of 1 to 128 of [A-Za-z0-9._-]", name)}
		}
		total += len(value)
	}
	for name, value := range env {
		if !validEnv(name) || !clean(value) {
			return &SpecError{"SecretEnv", fmt.Sprintf("%.80q is not a variable", name)}
		}
		total += len(value)
	}
	if total > MaxSecretBytes {
		return &SpecError{"Secrets", fmt.Sprintf("%d bytes, at most %d", total, MaxSecretBytes)}
	}
	return nil
}

// CheckImage holds an image reference to the rule that it names its content: a registry, a name and a SHA-256 digest,
// as in "ghcr.io/acme/train@sha256:…" (a tag before the '@' is allowed and means nothing).
func CheckImage(image string) error {
	if m := imagePattern().FindStringSubmatch(image); len(image) > maxImage || m == nil || m[1] == "" {
		return fmt.Errorf("%.120q is not an image by digest: want name@sha256: and 64 hexadecimal digits", image)
	}
	return nil
}

// CheckImageName holds an image reference to the grammar alone. Without a digest it names the content that the registry
// has at the time under the tag, or under "latest".
func CheckImageName(image string) error {
	m := imagePattern().FindStringSubmatch(image)
	if m == nil || len(image)-len(m[1])+len("@sha256:")+64 > maxImage {
		return fmt.Errorf("%.120q is not the name of an image: want one as in ghcr.io/acme/train:v1, or with a "+
			"digest, name@sha256: and 64 hexadecimal digits", image)
	}
	return nil
}

func (s Spec) checkArgs() error {
	for i, a := range s.Entrypoint {
		if !clean(a) || a == "" && i == 0 {
			return &SpecError{fmt.Sprintf("Entrypoint[%d]", i), "is not text without NUL"}
		}
	}
	if n := len(s.Entrypoint) + len(s.Args); n > MaxArgs {
		return &SpecError{"Args", fmt.Sprintf("%d arguments, at most %d", n, MaxArgs)}
	}
	total := 0
	for _, a := range s.Entrypoint {
		total += len(a) + 1
	}
	for i, a := range s.Args {
		if !clean(a) {
			return &SpecError{fmt.Sprintf("Args[%d]", i), "is not text without NUL"}
		}
		total += len(a) + 1
	}
	for k, v := range s.Env {
		if !validEnv(k) {
			return &SpecError{"Env", fmt.Sprintf("%q is not a variable name", k)}
		}
		if !clean(v) {
			return &SpecError{"Env", fmt.Sprintf("%s is not text without NUL", k)}
		}
		total += len(k) + len(v) + 2
	}
	if total > MaxArgBytes {
		return &SpecError{"Args", fmt.Sprintf("arguments and environment have %d bytes, at most %d",
			total, MaxArgBytes)}
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
		if s.Layer != "" && (within(s.Layer, m.Host) || within(m.Host, s.Layer)) {
			return &SpecError{field + ".Host", "and Layer lie in one another"}
		}
		if !clean(m.Guest) || len(m.Guest) > maxPath ||
			!path.IsAbs(m.Guest) || path.Clean(m.Guest) != m.Guest || m.Guest == "/" {
			return &SpecError{field + ".Guest", fmt.Sprintf("%q is not a clean absolute path below /", m.Guest)}
		}
		for _, own := range s.ownPlaces() {
			if within(m.Guest, own) || within(own, m.Guest) {
				return &SpecError{field + ".Guest", own + " belongs to the runtime"}
			}
		}
		for _, o := range s.Mounts[:i] {
			if within(m.Guest, o.Guest) || within(o.Guest, m.Guest) {
				return &SpecError{field + ".Guest", fmt.Sprintf("%s and %s lie in one another", m.Guest, o.Guest)}
			}
		}
	}
	return nil
}

// systemDirs are directories that nearly every image needs. kernelDirs belong to the engine.
var (
	systemDirs = []string{
		"/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/sbin",
		"/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin", "/usr/local/lib",
	}
	kernelDirs = []string{"/dev", "/proc", "/sys"}
)

// HidesSystem reports whether a mount at a clean absolute path would hide a directory that containers need.
func HidesSystem(guest string) bool {
	return slices.Contains(systemDirs, guest) ||
		slices.ContainsFunc(kernelDirs, func(dir string) bool { return within(guest, dir) })
}

// ownPlaces returns paths at, above or below which no mount is allowed.
func (s Spec) ownPlaces() []string {
	places := []string{ControlDir, SecretsDir}
	if s.Overlay != nil {
		places = append(places, overlayEtc...)
		if !s.Overlay.Alone {
			places = append(places, OverlayDir)
		}
	}
	return places
}

// Outermost returns those clean absolute paths that lie in no other, each once, sorted by elements. It sorts dirs.
func Outermost(dirs []string) (out []string) {
	// By elements and not by bytes: /a-b does not come between /a and /a/b.
	slices.SortFunc(dirs, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
	for _, p := range dirs {
		if len(out) == 0 || !within(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out
}

func checkHostPath(field, p string) error {
	if !clean(p) || len(p) > maxPath || !filepath.IsAbs(p) || filepath.Clean(p) != p || filepath.Dir(p) == p {
		return &SpecError{field, fmt.Sprintf("%q is not a clean absolute path below the root", p)}
	}
	return nil
}

// within reports whether p is dir or lies in it; both are clean and absolute.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(filepath.ToSlash(dir), "/")+"/")
}

// clean reports whether s passes through a C string and JSON unchanged.
func clean(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
