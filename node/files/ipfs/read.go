package ipfs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"
)

const (
	// atOnce is the number of blocks that are requested at a time.
	atOnce = 8
	// leastPart is the mean size of a file's parts, bytes, and spare the number of further blocks. Programs make parts
	// of 256 KiB or more. A file of smaller ones would be many requests for few bytes.
	leastPart = 4 << 10
	spare     = 1 << 10
)

// Found is a file or directory.
type Found struct {
	Dir  bool
	Size int64 // of a file, bytes

	node node
	c    Client
}

// Find requests a file or directory, along the path of its name. It returns ErrAbsent, ErrBlock or ErrForm.
func (c Client) Find(ctx context.Context, n Name) (Found, error) {
	at, err := c.load(ctx, n.Root)
	for i := 0; err == nil && i < len(n.Path); i++ {
		at, err = c.enter(ctx, at, n.Path[i])
	}
	if err != nil {
		return Found{}, fmt.Errorf("%s: %w", n, err)
	}
	return Found{Dir: at.kind != file, Size: at.size, node: at, c: c}, nil
}

func (c Client) load(ctx context.Context, id cid.Cid) (node, error) {
	b, err := c.block(ctx, id)
	if err != nil {
		return node{}, err
	}
	return decode(id, b)
}

// enter finds an entry of a directory.
func (c Client) enter(ctx context.Context, dir node, name string) (node, error) {
	if dir.kind == file {
		return node{}, fmt.Errorf("%w: %.80q in a file", ErrAbsent, name)
	}
	w := walk{c: c, blocks: MaxEntries, entries: MaxEntries}
	all, err := w.list(ctx, dir, 0)
	if err != nil {
		return node{}, err
	}
	i := slices.IndexFunc(all, func(l link) bool { return l.name == name })
	if i < 0 {
		return node{}, fmt.Errorf("%w: %.80q", ErrAbsent, name)
	}
	return c.load(ctx, all[i].id)
}

// MaxEntries bounds the entries of a directory and those below it.
const MaxEntries = 1 << 16

// Write writes the bytes of a file. It returns ErrLarge if they are more than limit.
func (f Found) Write(ctx context.Context, out io.Writer, limit int64) error {
	if f.Size > limit {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrLarge, f.Size, limit)
	}
	w := walk{c: f.c, blocks: f.Size/leastPart + spare}
	return w.file(ctx, f.node, out, 0)
}

// Save writes a directory into another one, which is empty, and returns its bytes. It returns ErrLarge if its files
// have more than limit.
func (f Found) Save(ctx context.Context, dir string, limit int64) (bytes int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	w := walk{c: f.c, blocks: limit/leastPart + spare, entries: MaxEntries, left: limit}
	err = w.save(ctx, f.node, root, ".", 0)
	return limit - w.left, err
}

// walk is a walk through the blocks of a file or directory, with its bounds.
type walk struct {
	c       Client
	blocks  int64 // that may still be requested
	entries int   // that may still be listed
	left    int64 // bytes of files that may still be saved
}

// each loads the blocks of links, atOnce at a time, and visits their nodes in order.
func (w *walk) each(ctx context.Context, links []link, visit func(l link, n node) error) error {
	for all := range slices.Chunk(links, atOnce) {
		if w.blocks -= int64(len(all)); w.blocks < 0 {
			return fmt.Errorf("%w: too many blocks", ErrForm)
		}
		nodes := make([]node, len(all))
		eg, loading := errgroup.WithContext(ctx)
		for i, l := range all {
			eg.Go(func() (err error) {
				nodes[i], err = w.c.load(loading, l.id)
				return err
			})
		}
		if err := eg.Wait(); err != nil {
			return err
		}
		for i, l := range all {
			n := nodes[i]
			nodes[i] = node{}
			if err := visit(l, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// file writes the bytes below a node of a file: as many as it declares.
func (w *walk) file(ctx context.Context, n node, out io.Writer, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: blocks of a file: more than %d levels", ErrForm, maxDepth)
	}
	if _, err := out.Write(n.data); err != nil {
		return err
	}
	return w.each(ctx, n.links, func(l link, part node) error {
		if part.kind != file || part.size != l.size {
			return fmt.Errorf("block %s: %w: got %d bytes of a file, want %d", l.id, ErrForm, part.size, l.size)
		}
		return w.file(ctx, part, out, depth+1)
	})
}

// list lists the entries of a directory, those of its shards too.
func (w *walk) list(ctx context.Context, n node, depth int) (all []link, err error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: shards of a directory: more than %d levels", ErrForm, maxDepth)
	}
	var below []link
	for _, l := range n.links {
		switch {
		case n.kind == shard && len(l.name) < n.prefix:
			return nil, fmt.Errorf("%w: link %.80q of a shard", ErrForm, l.name)
		case n.kind == shard && len(l.name) == n.prefix:
			below = append(below, l)
			continue
		case n.kind == shard:
			l.name = l.name[n.prefix:]
		}
		if err := checkElement(l.name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForm, err)
		}
		if w.entries--; w.entries < 0 {
			return nil, fmt.Errorf("%w: directory: more than %d entries", ErrLarge, MaxEntries)
		}
		all = append(all, l)
	}
	err = w.each(ctx, below, func(l link, sub node) error {
		if sub.kind != shard {
			return fmt.Errorf("block %s: %w: no shard of a directory", l.id, ErrForm)
		}
		more, err := w.list(ctx, sub, depth+1)
		all = append(all, more...)
		return err
	})
	return all, err
}

// save writes a directory at a path. A name that is there twice is an error.
func (w *walk) save(ctx context.Context, n node, root *os.Root, at string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: %.80q: more than %d levels of directories", ErrForm, at, maxDepth)
	}
	all, err := w.list(ctx, n, 0)
	if err != nil {
		return err
	}
	return w.each(ctx, all, func(l link, n node) error {
		to := path.Join(at, l.name)
		if n.kind != file {
			if err := root.Mkdir(to, 0o700); err != nil {
				return err
			}
			return w.save(ctx, n, root, to, depth+1)
		}
		if n.size > w.left {
			return fmt.Errorf("%w: %.80q: %d bytes, %d are left", ErrLarge, to, n.size, w.left)
		}
		w.left -= n.size
		f, err := root.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		err = w.file(ctx, n, f, 0)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return err
	})
}
