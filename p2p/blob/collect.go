package blob

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ipfs/go-cid"
)

const (
	// usedLately is the time that a blob is kept after a lookup in any case: the caller is about to use it.
	usedLately = 15 * time.Minute
	// noteUse is how old the note of its last use may become.
	noteUse = time.Minute
	// floorPart and floorMost are the part of the disk that a store leaves free, and its upper bound in bytes. The
	// journal is on the same disk, and a peer that cannot write its journal loses its leases.
	floorPart = 50
	floorMost = 4 << 30
)

// floor is the space that stays free on a disk of size all.
func floor(all int64) int64 { return min(all/floorPart, floorMost) }

// crowded is the number of bytes to remove. Once the disk has less than two times its floor free, it is the amount
// missing to three times. Once the store has more than seven eighths of its allowance, it is the amount above three
// quarters.
func (s *Store) crowded() int64 {
	s.mu.Lock()
	full := s.used + s.partial
	s.mu.Unlock()
	var out int64
	if left, all, ok := s.disk(s.dir); ok && left < 2*floor(all) {
		out = 3*floor(all) - left
	}
	if full > s.max/8*7 {
		out = max(out, full-s.max/4*3)
	}
	return out
}

// use notes when a blob was used last, which is its file's time.
func use(path string, info fs.FileInfo) {
	if now := time.Now(); now.Sub(info.ModTime()) > noteUse {
		_ = os.Chtimes(path, now, now) // else it goes earlier
	}
}

// stored is a blob as Collect sees it.
type stored struct {
	c       cid.Cid
	size    int64
	used    time.Time
	holders []string // the peers that brought it; none: this peer's own
}

// Collect removes blobs while the disk or the store is nearly full: of the holder with the most bytes, the least
// recently used blob. A blob with several holders is divided among them. Blobs in needed, and blobs used within the
// last 15 minutes, are not removed. Collect returns the number of removed bytes.
func (s *Store) Collect(needed func() (map[cid.Cid]bool, error)) (removed int64, err error) {
	room := s.crowded()
	if room <= 0 {
		return 0, nil
	}
	s.mu.Lock()
	before := s.partial
	s.dropPartials(room)
	removed = before - s.partial
	s.mu.Unlock()
	all, err := s.stored()
	if err != nil {
		return removed, fmt.Errorf("looking for blobs to remove: %w", err)
	}
	var may []stored
	stay, err := needed()
	if err != nil {
		return removed, fmt.Errorf("looking for blobs that must stay: %w", err)
	}
	for _, b := range all {
		if !stay[b.c] && time.Since(b.used) > usedLately {
			may = append(may, b)
		}
	}
	slices.SortFunc(may, func(a, b stored) int { return a.used.Compare(b.used) })
	has := shares(all)
	for removed < room && len(may) > 0 {
		i := next(may, has)
		b := may[i]
		may = slices.Delete(may, i, i+1)
		if err := s.Remove(b.c); err != nil {
			return removed, err
		}
		for _, h := range b.holders {
			has[h] -= b.size / int64(len(b.holders))
		}
		removed += b.size
	}
	return removed, nil
}

// shares are the bytes that each holder has.
func shares(all []stored) map[string]int64 {
	has := map[string]int64{}
	for _, b := range all {
		for _, h := range b.holders {
			has[h] += b.size / int64(len(b.holders))
		}
	}
	return has
}

// next is the index of the blob of may to remove first; may is in the order of last use. It belongs to the holder with
// the most bytes.
func next(may []stored, has map[string]int64) int {
	best, most := 0, int64(-1)
	for i, b := range may {
		for _, h := range b.holders {
			if has[h] > most {
				best, most = i, has[h]
			}
		}
	}
	return best
}

// stored lists the blobs that are here.
func (s *Store) stored() (out []stored, err error) {
	err = filepath.WalkDir(s.path("blobs"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // removed concurrently
		}
		c, err := cid.Decode(d.Name())
		if err != nil {
			return nil // not the store's
		}
		by, err := s.holders.of(c)
		if err != nil {
			return err
		}
		names := slices.SortedFunc(maps.Keys(by), cmp.Compare)
		if len(names) == 0 {
			names = []string{""}
		}
		out = append(out, stored{c: c, size: info.Size(), used: info.ModTime(), holders: names})
		return nil
	})
	return out, err
}
