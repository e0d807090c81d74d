package blob

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ipfs/go-cid"
)

// maxPart is the most bytes of a name in its folder that file systems take.
const maxPart = 255

// CheckTree checks that the blob c is an archive in the form of PutTree, and returns the size of its files and folders
// as Unpack counts it. It reads all of the archive and writes nothing: an archive that passes can be unpacked. It
// returns ErrArchive, or ErrTooLarge above maxBytes.
func (s *Store) CheckTree(ctx context.Context, c cid.Cid, maxBytes int64) (int64, error) {
	f, err := s.Open(c)
	if err != nil {
		return 0, fmt.Errorf("checking: %w", err)
	}
	defer f.Close()
	room := room{left: maxBytes, most: maxBytes, bad: ErrArchive}
	if err := checkTree(whileWanted{ctx, f}, &room); err != nil {
		return 0, fmt.Errorf("checking %s: %w", c, err)
	}
	return maxBytes - room.left, nil
}

// checkTree reads an archive whose entries come as the packer writes them: each folder before its content, and names in
// order. A name that comes twice, or beneath a file, is out of order.
func checkTree(r io.Reader, room *room) error {
	tr := tar.NewReader(r)
	var folder, last []string // the open folder; the entry before
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
		parts := strings.Split(name, "/")
		if slices.ContainsFunc(parts, func(p string) bool { return len(p) > maxPart }) {
			return fmt.Errorf("%w: a name of more than %d bytes", ErrArchive, maxPart)
		}
		above := parts[:len(parts)-1]
		if len(above) > len(folder) || !slices.Equal(above, folder[:len(above)]) || slices.Compare(parts, last) <= 0 {
			return fmt.Errorf("%w: %q is out of order", ErrArchive, name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			folder = parts
			err = room.take(1, 0)
		case tar.TypeReg:
			folder = above
			if err = room.take(1, h.Size); err == nil {
				_, err = io.Copy(io.Discard, tr)
			}
		default:
			return fmt.Errorf("%w: %q is of type %q", ErrArchive, h.Name, h.Typeflag)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %q is cut short", ErrArchive, name)
		}
		if err != nil {
			return err
		}
		last = parts
	}
}
