package blob

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/ipfs/go-cid"
)

// maxEntries bounds the files and folders of one archive: each costs an inode whatever its size.
const maxEntries = 100_000

// PutTree stores the folder dir as one archive. Equal folders make equal archives: entries are in the
// order of their names, and owners, times and all mode bits but "executable" are left out. Folders hold
// regular files and folders only; anything else is refused with ErrTree.
func (s *Store) PutTree(ctx context.Context, dir string) (cid.Cid, int64, error) {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(Pack(w, dir))
	}()
	c, size, err := s.Put(ctx, r)
	r.CloseWithError(errors.New("archive is not read any more"))
	<-done
	return c, size, err
}

// Pack writes the archive of the folder dir, as PutTree would store it.
func Pack(w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tw := tar.NewWriter(w)
	entries := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if !utf8.ValidString(name) { // which root.FS does not open
			return fmt.Errorf("%w: the name %q is not UTF-8", ErrTree, name)
		}
		if err != nil || name == "." {
			return err
		}
		if entries++; entries > maxEntries {
			return fmt.Errorf("%w: more than %d entries", ErrTree, maxEntries)
		}
		return packEntry(tw, root, name, d)
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

func packEntry(tw *tar.Writer, root *os.Root, name string, d fs.DirEntry) error {
	h := &tar.Header{Name: name, ModTime: time.Unix(0, 0).UTC(), Format: tar.FormatPAX}
	switch {
	case d.IsDir():
		h.Typeflag, h.Name, h.Mode = tar.TypeDir, name+"/", 0o755
		return tw.WriteHeader(h)
	case d.Type()&fs.ModeSymlink != 0:
		return fmt.Errorf("%w: %s is a symbolic link, only files and folders can be kept", ErrTree, name)
	case !d.Type().IsRegular():
		return fmt.Errorf("%w: %s is neither a file nor a folder (%v)", ErrTree, name, d.Type())
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size, h.Mode = tar.TypeReg, info.Size(), 0o644
	if info.Mode().Perm()&0o100 != 0 {
		h.Mode = 0o755
	}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(tw, f, h.Size); err != nil {
		return fmt.Errorf("archiving %s, which changed meanwhile: %w", name, err)
	}
	return nil
}

// Unpack unpacks the archive c into dir, which is made when missing and must be empty. Whoever made the
// archive, nothing is written outside dir: names with "..", absolute names, links, devices, repeated names
// and more than maxBytes of content are refused with ErrArchive or ErrTooLarge, and what was unpacked until
// then is removed.
func (s *Store) Unpack(c cid.Cid, dir string, maxBytes int64) error {
	f, err := s.Open(c)
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	defer f.Close()
	if err := unpackInto(f, dir, maxBytes); err != nil {
		return fmt.Errorf("unpacking %s: %w", c, diskError(err))
	}
	return nil
}

// Unpack unpacks the archive that r gives into dir, as strictly as Store.Unpack does.
func Unpack(r io.Reader, dir string, maxBytes int64) error {
	if err := unpackInto(r, dir, maxBytes); err != nil {
		return fmt.Errorf("unpacking: %w", diskError(err))
	}
	return nil
}

func unpackInto(r io.Reader, dir string, maxBytes int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return fmt.Errorf("folder %s is not empty", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	err = unpack(r, root, maxBytes)
	if err != nil {
		there, _ = os.ReadDir(dir)
		for _, e := range there {
			err = errors.Join(err, root.RemoveAll(e.Name()))
		}
	}
	return err
}

// unpack writes the archive's entries beneath root, which the operating system keeps them in.
func unpack(r io.Reader, root *os.Root, maxBytes int64) error {
	tr := tar.NewReader(r)
	var total int64
	for entries := 0; ; entries++ {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrArchive, err)
		}
		if entries >= maxEntries {
			return fmt.Errorf("%w: more than %d entries", ErrArchive, maxEntries)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\\x00") || !filepath.IsLocal(filepath.FromSlash(name)) {
			return fmt.Errorf("%w: name %q", ErrArchive, h.Name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			if total += h.Size; h.Size < 0 || total < 0 || total > maxBytes {
				return fmt.Errorf("%w: more than %d bytes unpacked", ErrTooLarge, maxBytes)
			}
			err = unpackFile(tr, root, name, h)
		default:
			return fmt.Errorf("%w: %q is of type %q", ErrArchive, h.Name, h.Typeflag)
		}
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EEXIST) {
			return fmt.Errorf("%w: %q twice, or beneath a file", ErrArchive, name)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(tr *tar.Reader, root *os.Root, name string, h *tar.Header) error {
	if parent := path.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	mode := fs.FileMode(0o644)
	if h.Mode&0o100 != 0 {
		mode = 0o755
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, tr)
	err = errors.Join(err, f.Close())
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %q is cut short", ErrArchive, name)
	}
	return err
}
