package store

import (
	"fmt"
	"runtime"
	"testing"
)

// LimitPages makes the file full at n pages.
func (s *SQLite) LimitPages(t testing.TB, n int) {
	t.Helper()
	if _, err := s.db.Exec(fmt.Sprintf("PRAGMA max_page_count=%d", n)); err != nil {
		t.Fatal(err)
	}
}

// Group keeps the connection while start sets off n writes, so that they share a commit.
func (s *SQLite) Group(t testing.TB, start func(), n int) {
	t.Helper()
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	start()
	for {
		s.mu.Lock()
		queued := len(s.queue)
		s.mu.Unlock()
		if queued == n {
			return
		}
		runtime.Gosched()
	}
}
