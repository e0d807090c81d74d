// Package compilecache is a directory of compiled programs that all children of a user's peers share. wazero reads and
// writes its entries. This package bounds the directory, and lets one process at a time compile a program.
package compilecache

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/node/runtime/wasm/process"
)

// abandoned is the age at which a half-written entry belongs to no process.
const abandoned = time.Hour

// Prune removes the oldest entries until the cache fits into limit bytes. Children that have one mapped keep it.
func Prune(dir string, limit int64) {
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

// Empty removes every entry; processes that have one loaded are not disturbed.
func Empty(dir string) {
	dirs, _ := filepath.Glob(filepath.Join(dir, "wazero-*"))
	for _, d := range dirs {
		_ = os.RemoveAll(d)
	}
	forgetTurns(dir)
}

// turnSuffix ends the names of the files by which processes compile a program once. A file has one byte for each
// compilation of its program.
const turnSuffix = ".turn"

const (
	// turnPatience is the time that a child waits for another to compile its program: that one may stand still, as one
	// of a lease that is paused.
	turnPatience = 20 * time.Second
	turnPoll     = 10 * time.Millisecond
)

// TakeTurn waits while another process compiles the same program, for as long as turnPatience, and returns at once if
// one has. The caller compiles the program, or finds it in the cache, and then calls done. Where there can be no lock
// it is compiled a time too many, which is no error.
func TakeTurn(dir string, code []byte) (done func(compiled bool)) {
	sum := sha256.Sum256(code)
	path := filepath.Join(dir, hex.EncodeToString(sum[:])+turnSuffix)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return func(bool) {}
	}
	err = process.Lock(f)
	for end := time.Now().Add(turnPatience); err != nil && time.Now().Before(end) && sizeOf(f) == 0; {
		time.Sleep(turnPoll)
		err = process.Lock(f)
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
