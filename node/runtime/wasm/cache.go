package wasm

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// abandoned is how old a half-written cache entry must be to be nobody's.
const abandoned = time.Hour

// pruneCache removes the oldest entries of the compile cache until it fits. Children that have one mapped keep it.
func pruneCache(dir string, limit int64) {
	type entry struct {
		path string
		size int64
		time time.Time
	}
	var entries []entry
	var total int64
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, turnSuffix) {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if strings.HasSuffix(path, ".tmp") && time.Since(info.ModTime()) > abandoned {
			_ = os.Remove(path)
			return nil
		}
		entries = append(entries, entry{path, info.Size(), info.ModTime()})
		total += info.Size()
		return nil
	})
	slices.SortFunc(entries, func(a, b entry) int { return a.time.Compare(b.time) })
	if total > limit {
		defer forgetTurns(dir)
	}
	for _, e := range entries {
		if total <= limit {
			return
		}
		if os.Remove(e.path) == nil {
			total -= e.size
		}
	}
}

// turnSuffix ends the names of the files beside the compile cache by which children compile a program once. A file has
// one byte for each time that its program was compiled.
const turnSuffix = ".turn"

const (
	// turnPatience is how long a child waits for another to compile its program: that one may stand still, as one of a
	// lease that is paused.
	turnPatience = 20 * time.Second
	turnPoll     = 10 * time.Millisecond
)

// takeTurn waits while another process compiles the same program for the cache in dir, for as long as turnPatience, and
// returns at once if one has. The caller compiles the program, or finds it in the cache, and then calls done. Where
// there can be no lock it is compiled a time too many, which is no error.
func takeTurn(dir string, code []byte) (done func(compiled bool)) {
	sum := sha256.Sum256(code)
	path := filepath.Join(dir, hex.EncodeToString(sum[:])+turnSuffix)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return func(bool) {}
	}
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	for end := time.Now().Add(turnPatience); err != nil && time.Now().Before(end) && sizeOf(f) == 0; {
		time.Sleep(turnPoll)
		err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil && sizeOf(f) == 0 {
		return func(compiled bool) {
			if compiled {
				_, _ = f.Write([]byte{1})
			}
			_ = f.Close()
		}
	}
	_ = f.Close()
	return func(bool) {}
}

func sizeOf(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// forgetTurns lets the programs of a cache be compiled again, one process at a time. It is called after entries of the
// cache were removed.
func forgetTurns(dir string) {
	turns, _ := filepath.Glob(filepath.Join(dir, "*"+turnSuffix))
	for _, t := range turns {
		_ = os.Remove(t)
	}
}
