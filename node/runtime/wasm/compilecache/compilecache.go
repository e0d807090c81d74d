// Package compilecache is a directory of compiled programs that all children of a user's peers share. wazero reads and
// writes its entries. This package bounds the directory, and lets one process at a time compile a program.
package compilecache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/starling-network/starling/node/runtime/wasm/process"
	"golang.org/x/sys/unix"
)

// abandoned is the age at which a half-written entry belongs to no process.
const abandoned = time.Hour

// Check returns an error if another user could have written the directory's entries, which are machine code.
func Check(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("cache %s: %w", dir, err)
	}
	if mode := fs.FileMode(st.Mode).Perm(); mode&0o022 != 0 {
		return fmt.Errorf("cache %s: writable by other users: mode %o, want 700", dir, mode)
	}
	if uid := uint32(os.Geteuid()); st.Uid != uid {
		return fmt.Errorf("cache %s: of another user: uid %d, want %d", dir, st.Uid, uid)
	}
	return nil
}

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
	// turnPatience is how long a child waits for a sign of life of another that compiles its program: that one may
	// stand still, as one of a lease that is paused. On a busy machine a compilation may take minutes.
	turnPatience = 20 * time.Second
	// turnBeat is the interval of these signs.
	turnBeat = time.Second
)

// Without a lock it is compiled once too often, which is no error.
func TakeTurn(dir string, code []byte) (done func(compiled bool)) {
	return takeTurn(dir, code, turnPatience)
}

func takeTurn(dir string, code []byte, patience time.Duration) (done func(compiled bool)) {
	sum := sha256.Sum256(code)
	path := filepath.Join(dir, hex.EncodeToString(sum[:])+turnSuffix)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return func(bool) {}
	}
	for sizeOf(f) == 0 {
		if process.Lock(f) == nil {
			return compiling(f)
		}
		if !awaitTurn(path, patience) {
			break
		}
		time.Sleep(rand.N(10 * time.Millisecond)) // only one waiting process gets the lock
	}
	_ = f.Close()
	return func(bool) {}
}

// compiling shows signs of life until done is called: the time of the file. f is locked.
func compiling(f *os.File) (done func(compiled bool)) {
	touch := func() { now := time.Now(); _ = os.Chtimes(f.Name(), now, now) }
	touch()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		beat := time.NewTicker(turnBeat)
		defer beat.Stop()
		for {
			select {
			case <-stop:
				return
			case <-beat.C:
				touch()
			}
		}
	}()
	return func(compiled bool) {
		close(stop)
		<-stopped
		if compiled && sizeOf(f) == 0 {
			_, _ = f.Write([]byte{1})
		}
		_ = f.Close()
	}
}

// awaitTurn returns true when no process compiles the program of a turn, or false if the compiling process makes no
// progress.
func awaitTurn(path string, patience time.Duration) bool {
	free := make(chan error, 1)
	go func() { // it may wait for longer than this process has patience
		f, err := os.Open(path)
		if err == nil {
			err = process.AwaitFree(f)
			_ = f.Close()
		}
		free <- err
	}()
	for began := time.Now(); ; {
		seen := began
		if info, err := os.Stat(path); err == nil && info.ModTime().After(began) {
			seen = info.ModTime()
		}
		left := patience - time.Since(seen)
		if left <= 0 {
			return false
		}
		select {
		case err := <-free:
			return err == nil
		case <-time.After(left):
		}
	}
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
