// Package template has jobs that others run with a few values of their own: `starling run --template NAME`.
//
//	NAME/job.yaml     a job file with parameters and a smoke run; see jobfile.ReadTemplate
//	NAME/README.md    three lines: the purpose, "Needs: …", "Example: starling run --template …"
//	NAME/Dockerfile   optional; builds the image from packages
//	NAME/…            optional; files that the job or the Dockerfile reads
//
// The canonical form of a template is the archive that package blob makes of its directory, without executable files.
// Its SHA-256 is the template's digest. An image that the job names by a tag is not part of it. The program has
// built-in templates. Others are directories, or are named by an index: a file with the digests of templates, signed
// by the key of its publisher, with the archives beside it.
//
//	index.json        {format, publisher, sequence, templates: [{name, digest, about}], signature}
//	<digest>.tar      the canonical form of each
//
// # Trust
//
// Everything in a template is hostile, for built-in ones too. A template has no secrets, credentials, webhooks, prices,
// budgets or choice of providers: the user gives them as flags. It reads no file outside itself and no variable. The
// user's own files become inputs only by a parameter that is declared as an input, and only if the user sets it.
// Nothing in it runs on the user's machine. Sizes are bounded by the constants below. A publisher's key is accepted by
// the user by name, and kept; its index must not go back to an earlier sequence number.
package template

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
	"github.com/starling-network/starling/p2p/blob"
)

// Limits of a template.
const (
	MaxFiles   = 32
	MaxBytes   = 512 << 10 // of all files
	MaxArchive = 1 << 20
	maxPath    = 128
)

// Files of a template.
const (
	FileJob        = "job.yaml"
	FileReadme     = "README.md"
	FileDockerfile = "Dockerfile"
)

// ErrInvalid means that a template breaks a rule.
var ErrInvalid = errors.New("template is not valid")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

var templateName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckName checks a template's name: 1 to 63 of a-z, 0-9 and '-', as a job's.
func CheckName(name string) error {
	if !templateName.MatchString(name) {
		return invalid("name: got %.40q, want 1 to 63 of a-z, 0-9 and '-'", name)
	}
	return nil
}

// Template is the content of a template's directory.
type Template struct {
	Name  string
	files map[string][]byte
}

// ReadFS reads the directory of a template. It holds regular files and directories only.
func ReadFS(name string, fsys fs.FS) (Template, error) {
	t := Template{name, map[string][]byte{}}
	if err := CheckName(name); err != nil {
		return t, err
	}
	left, entries := int64(MaxBytes), 0
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entries++; entries > 4*MaxFiles {
			return invalid("more than %d files and directories", 4*MaxFiles)
		}
		if d.IsDir() {
			return nil
		}
		if err := checkFile(p, d); err != nil {
			return err
		}
		b, err := fs.ReadFile(limited{fsys, left}, p)
		if err != nil {
			return err
		}
		if left -= int64(len(b)); left < 0 || len(t.files) == MaxFiles {
			return invalid("more than %d files or %d bytes", MaxFiles, MaxBytes)
		}
		t.files[p] = b
		return nil
	})
	return t, err
}

// Open reads the template in a directory, with the directory's name. No link is followed.
func Open(dir string) (Template, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Template{}, err
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return Template{}, fmt.Errorf("opening the template: %w", err)
	}
	defer root.Close()
	t, err := ReadFS(filepath.Base(abs), root.FS())
	if err != nil {
		return Template{}, fmt.Errorf("reading the template %s: %w", dir, err)
	}
	return t, nil
}

func checkFile(p string, d fs.DirEntry) error {
	switch {
	case !d.Type().IsRegular():
		return invalid("%.80q is not a regular file", p)
	case len(p) > maxPath || !fs.ValidPath(p) || strings.ContainsAny(p, `\:`) || !isText(p):
		return invalid("%.80q: want a path of at most %d bytes", p, maxPath)
	}
	return nil
}

func isText(s string) bool {
	control := func(r rune) bool { return unicode.IsControl(r) && r != '\n' }
	return utf8.ValidString(s) && !strings.ContainsFunc(s, control)
}

// limited refuses to open files that are too large, before they are read.
type limited struct {
	fs.FS
	most int64
}

func (l limited) Open(name string) (fs.File, error) {
	f, err := l.FS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (info.Size() > l.most || !info.Mode().IsRegular()) {
		err = invalid("%.80q is not a regular file of at most %d bytes", name, l.most)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Unpack reads the canonical form of a template with a digest.
func Unpack(ctx context.Context, name string, archive []byte, digest sign.Hash) (Template, error) {
	if got := sign.Sum(archive); got != digest {
		return Template{}, invalid("%s: SHA-256 of the archive: got %v, want %v", name, got, digest)
	}
	dir, err := os.MkdirTemp("", "starling-template-")
	if err != nil {
		return Template{}, err
	}
	defer os.RemoveAll(dir)
	if err := blob.Unpack(ctx, bytes.NewReader(archive), dir, MaxBytes+4*MaxFiles*blob.EntryBytes); err != nil {
		return Template{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	t, err := ReadFS(name, os.DirFS(dir))
	if err != nil {
		return Template{}, err
	}
	if t.Digest() != digest {
		return Template{}, invalid("%s: the archive is not in its canonical form", name)
	}
	return t, nil
}

// Archive returns the canonical form: the archive that blob.Pack makes of the directory, without executable files.
func (t Template) Archive() []byte {
	entries := map[string]bool{} // true: a directory
	for p := range t.files {
		entries[p] = false
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			entries[dir] = true
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, p := range slices.SortedFunc(maps.Keys(entries), byParts) {
		h := blob.Header(p)
		h.Typeflag, h.Size, h.Mode = tar.TypeReg, int64(len(t.files[p])), 0o644
		if entries[p] {
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, p+"/", 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err) // checked paths and a writer in memory
		}
		if _, err := w.Write(t.files[p]); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// byParts orders paths as a walk of the directory does.
func byParts(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }

// Digest is the SHA-256 of the canonical form.
func (t Template) Digest() sign.Hash { return sign.Sum(t.Archive()) }

// File returns a file, nil if there is none.
func (t Template) File(name string) []byte { return t.files[name] }

// About returns the first line of the README.
func (t Template) About() string {
	first, _, _ := strings.Cut(strings.TrimSpace(string(t.files[FileReadme])), "\n")
	return first
}

// Write writes the files below a new directory.
func (t Template) Write(dir string) error {
	for p, b := range t.files {
		at := filepath.Join(dir, filepath.FromSlash(p))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, b, 0o644)); err != nil {
			return fmt.Errorf("writing the template: %w", err)
		}
	}
	return nil
}

// Read reads the job with the values of parameters, of which dir has the template's files.
func (t Template) Read(values map[string]string, dir string) (jobfile.Template, *jobfile.Draft, error) {
	data, ok := t.files[FileJob]
	if !ok {
		return jobfile.Template{}, nil, invalid("%s: %s is missing", t.Name, FileJob)
	}
	spec, draft, err := jobfile.ReadTemplate(data, values, func(file string) string {
		return filepath.Join(dir, filepath.FromSlash(file))
	})
	if err != nil {
		return spec, nil, err
	}
	for _, file := range spec.Files {
		if !t.has(file) {
			return spec, nil, invalid("%s: %s: the file %.80q is missing", t.Name, FileJob, file)
		}
	}
	return spec, draft, nil
}

// has reports whether the template has a file or directory; one with {rank} is that of rank 0.
func (t Template) has(file string) bool {
	file = strings.ReplaceAll(file, job.RankMark, "0")
	for p := range t.files {
		if p == file || strings.HasPrefix(p, file+"/") {
			return true
		}
	}
	return false
}

// Check checks all files, with the values of the smoke run, and returns the description of the job file.
func (t Template) Check() (jobfile.Template, error) {
	if err := checkReadme(t.files[FileReadme]); err != nil {
		return jobfile.Template{}, err
	}
	if d, ok := t.files[FileDockerfile]; ok {
		if err := t.checkDockerfile(d); err != nil {
			return jobfile.Template{}, err
		}
	}
	spec, err := t.Describe()
	if err != nil {
		return spec, err
	}
	_, draft, err := t.Read(spec.Smoke.Set, "/template")
	if err != nil {
		return spec, err
	}
	_, err = jobfile.Flags{MaxPrice: "1", Args: spec.Smoke.Args}.Over(draft, jobfile.Token{Decimals: 6})
	return spec, err
}

// Describe returns the description of the job file without values of the user.
func (t Template) Describe() (jobfile.Template, error) {
	data, ok := t.files[FileJob]
	if !ok {
		return jobfile.Template{}, invalid("%s: %s is missing", t.Name, FileJob)
	}
	spec, err := jobfile.DescribeTemplate(data)
	if err != nil {
		return spec, fmt.Errorf("%s: %w", t.Name, err)
	}
	return spec, nil
}

// checkReadme checks the form of the README.
func checkReadme(b []byte) error {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	switch {
	case !isText(string(b)):
		return invalid("%s: want text without control characters", FileReadme)
	case len(lines) != 3:
		return invalid("%s: %d lines, want 3: the purpose, Needs: …, Example: …", FileReadme, len(lines))
	case len(lines[0]) > maxAbout || lines[0] == "":
		return invalid("%s: want a first line of at most %d bytes", FileReadme, maxAbout)
	case !strings.HasPrefix(lines[1], "Needs: "):
		return invalid("%s: second line: got %.40q, want Needs: …", FileReadme, lines[1])
	case !strings.HasPrefix(lines[2], "Example: starling run --template "):
		return invalid("%s: third line: got %.40q, want Example: starling run --template …", FileReadme, lines[2])
	}
	return nil
}

// maxAbout is the length of the line that describes a template.
const maxAbout = 100
