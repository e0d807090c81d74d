package blob

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ipfs/go-cid"
)

// maxHolders is how many holders of one blob are known. The first is forgotten for one more, and has to bring the blob
// again.
const maxHolders = 256

// holders are files that list the holders of blobs, a line each.
type holders struct {
	mu  sync.Mutex
	dir string
}

// Bring adds a holder of the blob: a peer that sent all of it, or is to receive it. The CID alone gives a peer no right
// to a blob. The holder is stored as long as the blob. It is any word of up to 128 bytes.
func (s *Store) Bring(c cid.Cid, holder string) error {
	if strings.ContainsAny(holder, "\n") || holder == "" || len(holder) > 128 {
		return fmt.Errorf("holder %q of a blob is no word", holder)
	}
	return s.holders.add(c, holder)
}

// Brought reports whether the holder is noted for a blob in the store.
func (s *Store) Brought(c cid.Cid, holder string) bool {
	there, err := s.holders.of(c)
	return err == nil && there[holder] > 0 && s.Has(c)
}

// Holders returns the noted holders of a blob, in no order.
func (s *Store) Holders(c cid.Cid) ([]string, error) {
	there, err := s.holders.of(c)
	return slices.Collect(maps.Keys(there)), err
}

// of returns the holders of a blob, with their places from 1 on.
func (h *holders) of(c cid.Cid) (map[string]int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	there, _, err := h.read(c)
	return there, err
}

func (h *holders) add(c cid.Cid, holder string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	there, lines, err := h.read(c)
	if err != nil || there[holder] > 0 {
		return err
	}
	path := h.path(c)
	keep := lines[:bytes.LastIndexByte(lines, '\n')+1] // a crash may have cut the last line
	if len(there) >= maxHolders {
		_, keep, _ = bytes.Cut(keep, []byte("\n"))
	}
	if len(keep) < len(lines) {
		if err := os.WriteFile(path, keep, 0o600); err != nil {
			return fmt.Errorf("noting holder of blob %s: %w", c, diskError(err))
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(holder + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("noting holder of blob %s: %w", c, diskError(err))
	}
	return nil
}

// drop forgets all holders of a blob.
func (h *holders) drop(c cid.Cid) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := os.Remove(h.path(c)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read returns the holders of a blob and the text of their file. h.mu is held.
func (h *holders) read(c cid.Cid) (there map[string]int, lines []byte, err error) {
	if err := Check(c); err != nil {
		return nil, nil, err
	}
	lines, err = os.ReadFile(h.path(c))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading holders of blob %s: %w", c, err)
	}
	there = map[string]int{}
	for line := range strings.Lines(string(lines)) {
		if holder, whole := strings.CutSuffix(line, "\n"); whole && holder != "" {
			there[holder] = len(there) + 1
		}
	}
	return there, lines, nil
}

func (h *holders) path(c cid.Cid) string { return filepath.Join(h.dir, c.String()) }
