package live

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/blob/entries"
)

const (
	// MaxEntries bounds the files and directories of one copy: each costs an inode, independent of its size.
	MaxEntries = 100_000
	// maxEntryHead is the maximum overhead of one entry in an archive: header, extended header, padding.
	maxEntryHead = 4 << 10
	// maxDepth bounds how deep directories lie in each other.
	maxDepth = 128
)

var (
	// ErrCopy means that files cannot be copied as they are.
	ErrCopy = errors.New("cannot be copied")
	// ErrRoom means that there is no room for all that is copied.
	ErrRoom = errors.New("is more than there is room for")
)

// MaxArchive returns the maximum length of an archive of files with a total of files bytes.
func MaxArchive(files int64) int64 { return files + MaxEntries*maxEntryHead }

// Pack writes name, a file or directory beneath root, as a tar archive that begins with the element as. Links are
// archived as links, anything else than files, directories and links is left out, and nothing outside root is ever
// read. It returns ErrRoom when the files have more than most bytes: a program may write while it is copied, and so
// without end.
func Pack(w io.Writer, root *os.Root, name, as string, most int64) error {
	p := packer{tw: tar.NewWriter(w), root: root, left: most, most: most}
	if err := p.add(name, as, 0, true); err != nil {
		return err
	}
	return p.tw.Close()
}

type packer struct {
	tw         *tar.Writer
	root       *os.Root
	entries    int
	left, most int64
}

func (p *packer) add(name, as string, depth int, first bool) error {
	if p.entries++; p.entries > MaxEntries || depth > maxDepth {
		return fmt.Errorf("%w: more than %d files, or %d directories in each other", ErrCopy, MaxEntries, maxDepth)
	}
	lstat := p.root.Lstat
	if first {
		lstat = p.root.Stat // as cp does for a path on its command line
	}
	info, err := lstat(name)
	if err != nil {
		if !first && errors.Is(err, fs.ErrNotExist) {
			return nil // removed since it was listed
		}
		return err
	}
	h := &tar.Header{Name: as, ModTime: info.ModTime(), Mode: int64(info.Mode().Perm()), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, as+"/"
		if err := p.tw.WriteHeader(h); err != nil {
			return err
		}
		return p.children(name, as, depth)
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := p.root.Readlink(name)
		if err != nil {
			return nil // no longer a link
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, to
		return p.tw.WriteHeader(h)
	case info.Mode().IsRegular():
		return p.file(name, h)
	case first:
		return fmt.Errorf("%w: %s is a %v", ErrCopy, as, info.Mode().Type())
	}
	return nil
}

func (p *packer) children(name, as string, depth int) error {
	d, err := p.root.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		list, err := d.ReadDir(256)
		for _, e := range list {
			if err := p.add(path.Join(name, e.Name()), as+"/"+e.Name(), depth+1, false); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// file archives the present content of a regular file. If it grows meanwhile it is cut, if it shrinks it is padded with
// zeros.
func (p *packer) file(name string, h *tar.Header) error {
	// Without waiting: the program may have put a pipe in the file's place since.
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s: no longer a regular file", ErrCopy, h.Name)
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if p.left -= h.Size; p.left < 0 {
		return fmt.Errorf("%w: more than %d MiB of files, which is all the disk that the lease has",
			ErrRoom, p.most>>20)
	}
	if err := p.tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(p.tw, io.LimitReader(f, h.Size))
	if err != nil {
		return err
	}
	_, err = io.CopyN(p.tw, zeros{}, h.Size-n)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Unpacked counts the entries that Unpack wrote and left out.
type Unpacked struct {
	Files int
	Bytes int64
	Links int // left out: links and everything else that is neither file nor directory
}

// Unpack unpacks the archive into dir, a directory beneath root, over the files there. It never writes outside root,
// regardless of the archive and of links in the path. It replaces the first element of every name by as unless as is
// empty. If refuse is set, a link is ErrCopy; otherwise links are skipped and counted. A sparse file is ErrCopy, so
// that at most the bytes read are written. More than most bytes is ErrRoom.
func Unpack(r io.Reader, root *os.Root, dir, as string, most int64, refuse bool) (u Unpacked, err error) {
	tr := tar.NewReader(io.LimitReader(r, MaxArchive(most)+1))
	found, last := 0, ""
	for {
		h, err := tr.Next()
		if err == io.EOF {
			// Bytes after the archive's end must be read, or their sender blocks; they are bounded.
			_, err := io.Copy(io.Discard, io.LimitReader(r, maxEntryHead<<4))
			return u, err
		}
		if err != nil {
			return u, fmt.Errorf("%w: reading the archive: %w", ErrCopy, err)
		}
		name, err := entryName(h.Name, as)
		if err != nil {
			return u, err
		}
		if found += entries.Fresh(name, last); found > MaxEntries {
			return u, fmt.Errorf("%w: more than %d files", ErrCopy, MaxEntries)
		}
		if last = name; name == "" {
			continue // the directory itself
		}
		name = path.Join(dir, name)
		if sparse(h) {
			return u, fmt.Errorf("%w: %s is a sparse file; archive it without that", ErrCopy, Clean(h.Name))
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			u.Files++
			if u.Bytes += h.Size; h.Size < 0 || u.Bytes < 0 || u.Bytes > most {
				return u, fmt.Errorf("%w: more than %d MiB", ErrRoom, most>>20)
			}
			err = writeFile(tr, root, name, h)
		default:
			if refuse {
				return u, fmt.Errorf("%w: %s is a link or a device; only files and directories can be",
					ErrCopy, Clean(h.Name))
			}
			u.Links++
		}
		if err == nil {
			err = give(root, dir, name)
		}
		if err != nil {
			return u, fmt.Errorf("writing %s: %w", Clean(name), err)
		}
	}
}

// sparse reports whether an archive leaves out parts of a file: so a few bytes of it would be any number on the disk.
func sparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for record := range h.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// entryName is where an entry goes, "" for the directory that everything goes to.
func entryName(name, as string) (string, error) {
	local := path.Clean(strings.TrimPrefix(name, "./"))
	if strings.ContainsAny(name, "\\\x00") || !filepath.IsLocal(filepath.FromSlash(local)) ||
		strings.Count(local, "/") > maxDepth {
		return "", fmt.Errorf("%w: an archive with the name %q", ErrCopy, Clean(name))
	}
	if local == "." {
		return "", nil
	}
	if as != "" {
		_, rest, _ := strings.Cut(local, "/")
		local = path.Join(as, rest)
	}
	return local, nil
}

func writeFile(tr io.Reader, root *os.Root, name string, h *tar.Header) error {
	if parent := path.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	mode := fs.FileMode(0o644)
	if h.Mode&0o100 != 0 {
		mode = 0o755
	}
	// An existing file is replaced and never opened: it may be a link, or a pipe without a reader.
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, tr)
	return errors.Join(err, f.Close())
}

// Usage is how many bytes the files beneath root have, counted until most is reached.
func Usage(root *os.Root, most int64) (int64, error) {
	var sum int64
	entries := 0
	err := runtime.Walk(root, func(_ string, info fs.FileInfo) error {
		if info.Mode().IsRegular() {
			sum += info.Size()
		}
		if entries++; entries > MaxEntries || sum > most {
			sum = most + 1
			return fs.SkipAll
		}
		return nil
	})
	return sum, err
}
