package rayjobs

import (
	"archive/zip"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
)

const (
	// MaxPackage is what Ray's dashboard takes of one upload, bytes.
	MaxPackage = 100 << 20
	// MaxFiles is how many files a working directory may have.
	MaxFiles = 100_000
	maxRules = 1 << 20 // bytes of one file of patterns
)

// Package is the zip of a working directory, in a temporary file. Close it.
type Package struct {
	Files int
	Size  int64 // bytes of the zip
	name  string
	file  *os.File
}

// URI is what a job's runtime environment calls it.
func (p *Package) URI() string { return "gcs://" + p.name }

// Close removes the file.
func (p *Package) Close() error {
	return errors.Join(p.file.Close(), os.Remove(p.file.Name()))
}

// Pack makes a package of a directory: all files but those that .gitignore and .rayignore files name, and .git, .venv, venv and
// __pycache__. Links are followed to files inside of the directory. The same files make the same package. ErrPackage for what cannot be
// sent.
func Pack(dir string) (*Package, error) { return pack(dir, MaxPackage) }

func pack(dir string, limit int64) (*Package, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPackage, err)
	}
	defer root.Close()
	file, err := os.CreateTemp("", "starling-*.zip")
	if err != nil {
		return nil, fmt.Errorf("packing %s: %w", dir, err)
	}
	p := &Package{file: file}
	hash := sha256.New()
	z := &packer{root: root, zip: zip.NewWriter(io.MultiWriter(&limited{w: file, left: limit}, hash))}
	z.zip.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) })
	if err = z.ignores(alwaysIgnored); err == nil {
		err = fs.WalkDir(root.FS(), ".", z.entry)
	}
	if err == nil {
		err = z.zip.Close()
	}
	if err == nil {
		p.Size, err = file.Seek(0, io.SeekCurrent)
	}
	if errors.Is(err, errLarge) {
		err = fmt.Errorf("%w: %s is more than the %d MiB that Ray takes; largest are %s", ErrPackage, dir, limit>>20, z.largest())
	}
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	p.Files, p.name = z.files, "_ray_pkg_"+hex.EncodeToString(hash.Sum(nil)[:16])+".zip"
	return p, nil
}

var errLarge = errors.New("too large")

// limited refuses more than a package may have.
type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= int64(len(b)); l.left < 0 {
		return 0, errLarge
	}
	return l.w.Write(b)
}

// packer writes the files of a directory.
type packer struct {
	root  *os.Root
	zip   *zip.Writer
	files int
	rules []ignore
	sizes []sized
}

type sized struct {
	name string
	size int64
}

// ignores adds patterns that hold everywhere.
func (z *packer) ignores(patterns []string) error {
	ig, err := parseIgnore("", "", strings.Join(patterns, "\n"))
	z.rules = append(z.rules, ig)
	return err
}

func (z *packer) entry(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPackage, err)
	}
	if name == "." {
		return z.read("")
	}
	for _, r := range z.rules {
		if r.out(name, d.IsDir()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
	}
	if z.files++; z.files > MaxFiles {
		return fmt.Errorf("%w: there are more than %d files; name what is not needed in a .rayignore file", ErrPackage, MaxFiles)
	}
	if d.IsDir() {
		if err := z.read(name + "/"); err != nil {
			return err
		}
		_, err := z.zip.CreateHeader(&zip.FileHeader{Name: name + "/", Method: zip.Store})
		return err
	}
	return z.add(name)
}

// read takes the patterns of a directory, "" or "a/b/".
func (z *packer) read(dir string) error {
	for _, name := range ignoreFiles {
		info, err := z.root.Lstat(dir + name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if info.Size() > maxRules {
			return fmt.Errorf("%w: %s%s is longer than 1 MiB", ErrPackage, dir, name)
		}
		text, err := z.root.ReadFile(dir + name)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrPackage, err)
		}
		ig, err := parseIgnore(dir, name, string(text))
		if err != nil {
			return err
		}
		z.rules = append(z.rules, ig)
	}
	return nil
}

// add writes one file. A file that leads out of the directory, or is none, is refused: what is sent must not depend on what the
// directory's user did not see in it.
func (z *packer) add(name string) error {
	info, err := z.root.Stat(name)
	if err != nil {
		return fmt.Errorf("%w: %s: %w; name it in a .rayignore file if it is not needed", ErrPackage, name, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is no file; name it in a .rayignore file if it is not needed", ErrPackage, name)
	}
	f, err := z.root.Open(name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPackage, err)
	}
	defer f.Close()
	z.sizes = append(z.sizes, sized{name, info.Size()})
	h := &zip.FileHeader{Name: name, Method: zip.Deflate}
	h.SetMode(info.Mode().Perm())
	w, err := z.zip.CreateHeader(h)
	if err == nil {
		_, err = io.Copy(w, f)
	}
	if err != nil && !errors.Is(err, errLarge) {
		return fmt.Errorf("%w: %s: %w", ErrPackage, name, err)
	}
	return err
}

// largest names the three largest files.
func (z *packer) largest() string {
	slices.SortFunc(z.sizes, func(a, b sized) int { return int(min(max(b.size-a.size, -1), 1)) })
	var words []string
	for _, s := range z.sizes[:min(3, len(z.sizes))] {
		words = append(words, fmt.Sprintf("%s (%d MiB)", s.name, s.size>>20))
	}
	return strings.Join(words, ", ")
}

// Upload gives the cluster a package, unless it has it.
func (c *Client) Upload(ctx context.Context, p *Package) error {
	at := "/api/packages/gcs/" + p.name
	return c.again(ctx, func(bool) error {
		err := c.call(ctx, http.MethodGet, at, nil, nil, maxAnswer)
		if refused, ok := errors.AsType[*Error](err); err == nil || !ok || refused.Status != http.StatusNotFound {
			return err
		}
		resp, err := c.do(ctx, http.MethodPut, at, io.NewSectionReader(p.file, 0, p.Size), p.Size, "application/zip")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}
