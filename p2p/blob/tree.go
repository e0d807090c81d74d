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
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/p2p/blob/entries"
	"github.com/starling-network/starling/p2p/blob/pour"
	"github.com/starling-network/starling/p2p/blob/remove"
)

const (
	// MaxEntries bounds the files and folders of one archive, those counted that only names of others imply.
	MaxEntries = 100_000
	// EntryBytes is the minimum size that a file or folder counts for: about its cost on disk, however small.
	EntryBytes = 4 << 10
	// maxDepth bounds the nesting of folders, maxName the length of a path in an archive: an entry's overhead in an
	// archive is then less than EntryBytes.
	maxDepth = 128
	maxName  = 2048
)

// Tree is a folder that was stored.
type Tree struct {
	CID      cid.Cid
	Size     int64 // bytes of its archive
	Unpacked int64 // bytes of its files and folders, each counted as at least EntryBytes
}

// PutTree stores the folder dir as one archive. Equal folders make equal archives: entries are in the order of their
// names, and owners, times and all mode bits but "executable" are left out. Folders hold regular files and folders. A
// symbolic link is stored as the file that it leads to, which must lie in dir too. Anything else is refused with
// ErrTree. Files and folders of more than maxBytes, by their length and not by the blocks they have on the disk, are
// refused with ErrTooLarge.
func (s *Store) PutTree(ctx context.Context, dir string, maxBytes int64) (Tree, error) {
	r, w := io.Pipe()
	packed := make(chan int64, 1)
	go func() {
		n, err := pack(ctx, w, dir, maxBytes)
		w.CloseWithError(err)
		packed <- n
	}()
	c, size, err := s.Put(ctx, r)
	r.CloseWithError(errors.New("archive: reading stopped"))
	return Tree{CID: c, Size: size, Unpacked: <-packed}, err
}

// Pack writes the archive of the folder dir, as PutTree would store it.
func Pack(ctx context.Context, w io.Writer, dir string, maxBytes int64) error {
	_, err := pack(ctx, w, dir, maxBytes)
	return err
}

// pack returns how much of maxBytes the folder took.
func pack(ctx context.Context, w io.Writer, dir string, maxBytes int64) (int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	p := packer{ctx: ctx, top: root, tw: tar.NewWriter(w), room: room{left: maxBytes, most: maxBytes, bad: ErrTree}}
	if err := p.folder(root, ""); err != nil {
		return 0, err
	}
	return maxBytes - p.room.left, p.tw.Close()
}

// MaxArchive is the maximum length of an archive of files and folders with a counted size.
func MaxArchive(unpacked int64) int64 {
	return unpacked + (min(unpacked/EntryBytes, MaxEntries)+1)*EntryBytes
}

// room is the rest of the limits for packing or unpacking.
type room struct {
	entries    int
	left, most int64 // bytes
	bad        error // the error of too many entries
}

// take takes room for n files and folders, the last of which has size bytes.
func (r *room) take(n int, size int64) error {
	if r.entries += n; r.entries > MaxEntries {
		return fmt.Errorf("%w: more than %d entries", r.bad, MaxEntries)
	}
	if size = max(size, EntryBytes); size > r.left || int64(n-1)*EntryBytes > r.left-size {
		return fmt.Errorf("%w: more than %d bytes of files", ErrTooLarge, r.most)
	}
	r.left -= size + int64(n-1)*EntryBytes
	return nil
}

type packer struct {
	ctx  context.Context
	top  *os.Root // the archived folder, which no link leads out of
	tw   *tar.Writer
	room room
}

// folder archives the content of root, which is called name in the archive. One descriptor for each level is open, and
// a folder's names are in memory.
func (p *packer) folder(root *os.Root, name string) error {
	entries, err := p.list(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !utf8.ValidString(e.Name()) {
			return fmt.Errorf("%w: the name %q is not UTF-8", ErrTree, name+e.Name())
		}
		if err := p.entry(root, name+e.Name(), e); err != nil {
			return err
		}
	}
	return nil
}

// list gives the entries of root in the order of their names.
func (p *packer) list(root *os.Root) (all []fs.DirEntry, err error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for {
		some, err := d.ReadDir(1024)
		all = append(all, some...)
		if len(all) > MaxEntries-p.room.entries {
			return nil, fmt.Errorf("%w: more than %d entries", ErrTree, MaxEntries)
		}
		if err == io.EOF {
			slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Header returns the header of an entry of an archive, without its type, size and mode.
func Header(name string) *tar.Header {
	return &tar.Header{Name: name, ModTime: time.Unix(0, 0).UTC(), Format: tar.FormatPAX}
}

func (p *packer) entry(root *os.Root, name string, d fs.DirEntry) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if strings.Count(name, "/") >= maxDepth || len(name) > maxName {
		return fmt.Errorf("%w: more than %d folders in each other, or a path of more than %d bytes",
			ErrTree, maxDepth, maxName)
	}
	h := Header(name)
	switch {
	case d.IsDir():
		if err := p.room.take(1, 0); err != nil {
			return err
		}
		h.Typeflag, h.Name, h.Mode = tar.TypeDir, name+"/", 0o755
		if err := p.tw.WriteHeader(h); err != nil {
			return err
		}
		sub, err := root.OpenRoot(d.Name())
		if err != nil {
			return err
		}
		defer sub.Close()
		return p.folder(sub, h.Name)
	case d.Type()&fs.ModeSymlink == 0 && !d.Type().IsRegular():
		return fmt.Errorf("%w: %s is neither a file nor a folder (%v)", ErrTree, name, d.Type())
	}
	f, info, err := p.open(root, name, d)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size, h.Mode = tar.TypeReg, info.Size(), 0o644
	if info.Mode().Perm()&0o100 != 0 {
		h.Mode = 0o755
	}
	if err := p.room.take(1, h.Size); err != nil {
		return fmt.Errorf("archiving %s: %w", name, err)
	}
	if err := p.tw.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(p.tw, f, h.Size); err != nil {
		return fmt.Errorf("archiving %s, which changed meanwhile: %w", name, err)
	}
	return nil
}

// open opens a regular file, or the regular file in the archived folder that a symbolic link leads to.
func (p *packer) open(root *os.Root, name string, d fs.DirEntry) (*os.File, fs.FileInfo, error) {
	link := d.Type()&fs.ModeSymlink != 0
	if link {
		root = p.top // from where a link may lead into other subfolders
	} else {
		name = d.Name()
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe in its place would block
	var info fs.FileInfo
	if err == nil {
		if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%w: %s is no regular file (%v)", ErrTree, name, info.Mode().Type())
		}
		if err != nil {
			f.Close()
		}
	}
	if link && err != nil {
		target, _ := root.Readlink(name) // empty if the link has gone
		err = fmt.Errorf("%w: %s: symbolic link to %q: want a relative link to a file in the folder; "+
			"a copy made by cp -rL has the file itself", ErrTree, name, target)
	}
	return f, info, err
}

// Unpack unpacks the archive c into dir, which is made when missing and must be empty. Nothing is written outside dir,
// even by a hostile archive. Names with "..", absolute names, links, devices and repeated names are refused with
// ErrArchive or ErrTooLarge. So are more than 128 nested folders, more than MaxEntries entries, and more than maxBytes,
// where each entry counts at least EntryBytes. On an error, or when ctx ends, the unpacked part is removed. Unpack
// returns its use of maxBytes.
func (s *Store) Unpack(ctx context.Context, c cid.Cid, dir string, maxBytes int64) (int64, error) {
	f, err := s.Open(c)
	if err != nil {
		return 0, fmt.Errorf("unpacking: %w", err)
	}
	defer f.Close()
	n, err := unpackInto(ctx, f, dir, maxBytes)
	if err != nil {
		return 0, fmt.Errorf("unpacking %s: %w", c, diskError(err))
	}
	return n, nil
}

// UnpackAhead is Unpack of an archive that the caller receives next. The caller calls Finish after that, and Close in
// the end. A transfer that begins at the first byte is unpacked while it runs, for one caller at a time. alone is the
// holder of an archive that nothing else needs, or "": such a transfer for this holder does not store it. Before Finish
// returns, the content of dir is not to be used.
func (s *Store) UnpackAhead(ctx context.Context, c cid.Cid, dir string, maxBytes int64, alone string) *Unpacking {
	u := &Unpacking{s: s, ctx: ctx, c: c, dir: dir, max: maxBytes, from: s.ahead.Open(c, alone),
		done: make(chan struct{})}
	go u.run()
	return u
}

// Unpack unpacks the archive that r gives into dir, as strictly as Store.Unpack does. It reads r to its end.
func Unpack(ctx context.Context, r io.Reader, dir string, maxBytes int64) error {
	if _, err := unpackInto(ctx, r, dir, maxBytes); err != nil {
		return fmt.Errorf("unpacking: %w", diskError(err))
	}
	return nil
}

func unpackInto(ctx context.Context, r io.Reader, dir string, maxBytes int64) (int64, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	if len(there) > 0 {
		return 0, fmt.Errorf("folder %s is not empty", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	room := room{left: maxBytes, most: maxBytes, bad: ErrArchive}
	r = whileWanted{ctx, r}
	if err = unpack(r, root, &room); err == nil {
		_, err = io.Copy(io.Discard, r) // an archive may end before its blob: the end of the blob is its digest
	}
	if err != nil {
		return 0, errors.Join(err, remove.Contents(root))
	}
	return maxBytes - room.left, nil
}

// whileWanted reads until ctx ends.
type whileWanted struct {
	ctx context.Context
	r   io.Reader
}

func (w whileWanted) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.r.Read(p)
}

// unpack writes the archive's entries beneath root, which the operating system keeps them in.
func unpack(r io.Reader, root *os.Root, room *room) error {
	tr := tar.NewReader(r)
	buf := make([]byte, copyBuffer)
	var last string
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrArchive, err)
		}
		name, err := entryName(h)
		if err != nil {
			return err
		}
		size := h.Size
		if h.Typeflag != tar.TypeReg {
			size = 0
		}
		if err := room.take(entries.Fresh(name, last), size); err != nil {
			return err
		}
		last = name
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			err = unpackFile(tr, root, name, h, buf)
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

// entryName returns the path of an archive's entry, or ErrArchive if it is not a clean relative one of bounded length.
func entryName(h *tar.Header) (string, error) {
	name := strings.TrimSuffix(h.Name, "/")
	switch {
	case len(name) > maxName:
		return "", fmt.Errorf("%w: a name of %d bytes", ErrArchive, len(name))
	case !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\\x00") ||
		!filepath.IsLocal(filepath.FromSlash(name)):
		return "", fmt.Errorf("%w: name %q", ErrArchive, h.Name)
	case strings.Count(name, "/") >= maxDepth:
		return "", fmt.Errorf("%w: more than %d folders in each other", ErrArchive, maxDepth)
	}
	return name, nil
}

func unpackFile(tr *tar.Reader, root *os.Root, name string, h *tar.Header, buf []byte) error {
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
	err = errors.Join(pour.Fill(f, tr, h.Size, buf), f.Close())
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %q is cut short", ErrArchive, name)
	}
	return err
}
