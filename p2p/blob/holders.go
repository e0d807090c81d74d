package blob

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/ipfs/go-cid"
)

// maxHolders is how many holders of one blob are known. The first is forgotten for one more, and has to bring the blob
// again.
const maxHolders = 256

// Bring notes that who had the blob: it sent all of it, or is to have it. A peer that knows only its CID has no right
// to blobs of others. The store keeps the note as long as the blob. who is any word of up to 128 bytes.
func (s *Store) Bring(c cid.Cid, who string) error {
	if strings.ContainsAny(who, "\n") || who == "" || len(who) > 128 {
		return fmt.Errorf("holder %q of a blob is no word", who)
	}
	s.holding.Lock()
	defer s.holding.Unlock()
	there, err := s.holders(c)
	if err != nil || there[who] > 0 {
		return err
	}
	path := s.path("holders", c.String())
	if len(there) >= maxHolders {
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("noting who has a blob: %w", err)
		}
		_, rest, _ := bytes.Cut(b, []byte("\n"))
		if err := os.WriteFile(path, rest, 0o600); err != nil {
			return fmt.Errorf("noting who has a blob: %w", diskError(err))
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(who + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("noting who has a blob: %w", diskError(err))
	}
	return nil
}

// Brought reports whether the holder is noted for a blob in the store.
func (s *Store) Brought(c cid.Cid, who string) bool {
	s.holding.Lock()
	defer s.holding.Unlock()
	there, err := s.holders(c)
	return err == nil && there[who] > 0 && s.Has(c)
}

// holders are those that are noted, with their places from 1 on. s.holding is held.
func (s *Store) holders(c cid.Cid) (map[string]int, error) {
	if err := Check(c); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(s.path("holders", c.String()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading who has a blob: %w", err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(b)) {
		if who, whole := strings.CutSuffix(line, "\n"); whole && who != "" { // a crash may have cut the last one
			out[who] = len(out) + 1
		}
	}
	return out, nil
}
