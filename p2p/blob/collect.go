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
	// UsedLately is the time that a blob is kept after a lookup in any case: the caller is about to use it.
	UsedLately = 15 * time.Minute
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

// Stored is a blob in the store.
type Stored struct {
	CID     cid.Cid
	Size    int64
	Used    time.Time // the last time, to a minute
	Holders []string  // sorted; "": this peer itself
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
	all, err := s.List()
	if err != nil {
		return removed, fmt.Errorf("looking for blobs to remove: %w", err)
	}
	var may []Stored
	stay, err := needed()
	if err != nil {
		return removed, fmt.Errorf("looking for blobs that must stay: %w", err)
	}
	for _, b := range all {
		if !stay[b.CID] && time.Since(b.Used) > UsedLately {
			may = append(may, b)
		}
	}
	slices.SortFunc(may, func(a, b Stored) int { return a.Used.Compare(b.Used) })
	has := shares(all)
	for removed < room && len(may) > 0 {
		i := next(may, has)
		b := may[i]
		may = slices.Delete(may, i, i+1)
		if err := s.Remove(b.CID); err != nil {
			return removed, err
		}
		for _, h := range b.Holders {
			has[h] -= b.Size / int64(len(b.Holders))
		}
		removed += b.Size
	}
	return removed, nil
}

// shares are the bytes that each holder has.
func shares(all []Stored) map[string]int64 {
	has := map[string]int64{}
	for _, b := range all {
		for _, h := range b.Holders {
			has[h] += b.Size / int64(len(b.Holders))
		}
	}
	return has
}

// next is the index of the blob of may to remove first; may is in the order of last use. It belongs to the holder with
// the most bytes.
func next(may []Stored, has map[string]int64) int {
	best, most := 0, int64(-1)
	for i, b := range may {
		for _, h := range b.Holders {
			if has[h] > most {
				best, most = i, has[h]
			}
		}
	}
	return best
}

// List returns the blobs in the store.
func (s *Store) List() (out []Stored, err error) {
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
		out = append(out, Stored{CID: c, Size: info.Size(), Used: info.ModTime(), Holders: names})
		return nil
	})
	return out, err
}

// Used is how many bytes of its allowance the store holds.
func (s *Store) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}
