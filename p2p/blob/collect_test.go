package blob

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
)

// A buyer that fills a provider's disk loses its own blobs, those first that it has not used for longest, and never what is needed.
func TestAttackFullStore(t *testing.T) {
	t.Parallel()
	s, err := OpenStore(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	left, all := int64(3500), int64(100_000) // floor is 2000: collecting begins below 4000, and goes on to 6000
	s.disk = func(string) (int64, int64, bool) { return left, all, true }
	now := time.Now()
	put := func(who string, i int, age time.Duration) cid.Cid {
		c, _, err := s.Put(t.Context(), bytes.NewReader(bytes.Repeat([]byte(fmt.Sprintf("%5s%5d", who, i)), 50)))
		if err == nil && who != "" {
			err = s.Bring(c, who)
		}
		if err = errors.Join(err, os.Chtimes(s.file(c), now, now.Add(-age))); err != nil {
			t.Fatal(err)
		}
		return c
	}
	var evil, kept []cid.Cid
	for i := range 10 {
		evil = append(evil, put("evil", i, time.Duration(60-i)*time.Minute))
	}
	for i := range 3 {
		kept = append(kept, put("alice", i, 50*time.Hour), put("", i, 100*time.Hour))
	}
	kept = append(kept, put("evil", 10, 0)) // it was used just now
	if err := errors.Join(s.Bring(kept[0], "bob"), s.Bring(evil[2], "alice")); err != nil {
		t.Fatal(err)
	}
	needed := func() (map[cid.Cid]bool, error) { return map[cid.Cid]bool{evil[0]: true}, nil }
	unknown := errors.New("the journal is away")
	if n, err := s.Collect(func() (map[cid.Cid]bool, error) { return nil, unknown }); n != 0 || !errors.Is(err, unknown) {
		t.Errorf("%d bytes removed where it is not known what must stay: %v", n, err)
	}
	n, err := s.Collect(needed)
	if err != nil || n != 2500 {
		t.Errorf("%d bytes removed, want 2500: %v", n, err)
	}
	for i, c := range evil {
		if _, err := os.Stat(s.file(c)); (err == nil) != (i == 0 || i > 5) {
			t.Errorf("blob %d of who has most: %v", i, err)
		}
	}
	for i, c := range kept {
		if _, err := os.Stat(s.file(c)); err != nil {
			t.Errorf("blob %d of the others: %v", i, err)
		}
	}
	left = 4000
	if n, err := s.Collect(needed); n != 0 || err != nil {
		t.Errorf("%d bytes removed with room: %v", n, err)
	}
	left = 1999
	if _, _, err := s.Put(t.Context(), bytes.NewReader([]byte("more"))); !errors.Is(err, ErrDiskFull) {
		t.Errorf("below the floor: got %v, want ErrDiskFull", err)
	}
	left = 1 << 30
	s.max = s.used + 100
	if n, err := s.Collect(needed); n == 0 || err != nil || s.used > s.max/4*3 {
		t.Errorf("%d bytes removed of a full store: %v; %d of %d in use", n, err, s.used, s.max)
	}
}
