package store

import (
	"context"
	"errors"
	"fmt"
)

// write is one Write call on its way to the disk.
type write struct {
	puts []Put
	done chan struct{}
	err  error
}

// Write implements Store.
func (s *SQLite) Write(ctx context.Context, puts ...Put) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkPuts(puts); err != nil {
		return err
	}
	w := &write{puts: puts, done: make(chan struct{})}
	s.mu.Lock()
	s.queue = append(s.queue, w)
	s.mu.Unlock()
	// Either another writer with the turn writes this batch, or this one gets the turn and writes the whole queue.
	for {
		select {
		case <-w.done:
			return w.err
		case <-s.turn:
			s.commitGroup()
			s.turn <- struct{}{}
		case <-ctx.Done():
			if s.unqueue(w) {
				return ctx.Err()
			}
			<-w.done // already being written
			return w.err
		}
	}
}

func (s *SQLite) unqueue(w *write) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.queue {
		if q == w {
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			return true
		}
	}
	return false
}

// commitGroup writes the queued batches. The caller has the turn.
func (s *SQLite) commitGroup() {
	s.mu.Lock()
	group := s.queue[:min(len(s.queue), maxGroup)]
	s.queue = s.queue[len(group):]
	s.mu.Unlock()
	if len(group) == 0 {
		return
	}
	err := s.commit(group...)
	if err != nil && len(group) > 1 && s.usable() == nil {
		// One of them does not fit; the others must not suffer for it.
		for _, w := range group {
			w.err = s.commit(w)
			close(w.done)
		}
		return
	}
	for _, w := range group {
		w.err = err
		close(w.done)
	}
}

// commit writes group in one transaction. The caller has the turn.
func (s *SQLite) commit(group ...*write) error {
	if err := s.usable(); err != nil {
		return err
	}
	tx, err := s.db.Begin()
	if err != nil {
		return s.failed(err)
	}
	for _, w := range group {
		for _, p := range w.puts {
			if p.Value == nil {
				_, err = tx.Stmt(s.del).Exec(p.Kind, p.Key)
			} else {
				_, err = tx.Stmt(s.put).Exec(p.Kind, p.Key, p.Value, checksum(p.Kind, p.Key, p.Value))
			}
			if err != nil {
				_ = tx.Rollback() // SQLite may have rolled back already; in both cases nothing is committed
				return s.failed(err)
			}
		}
	}
	if err := tx.Commit(); err != nil {
		_ = tx.Rollback()
		return s.failed(err)
	}
	return nil
}

// failed decides the effect of an error on later calls: a full disk passes, a disk that failed does not. (A sync
// that failed may not be tried again: the kernel has already forgotten which pages were dirty.)
func (s *SQLite) failed(err error) error {
	err = fmt.Errorf("writing journal: %w", translate(err))
	if errors.Is(err, ErrFull) || errors.Is(err, ErrLocked) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return s.broken
}

func (s *SQLite) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return s.broken
}

// take waits for the turn; the caller must give it back by calling the function it gets.
func (s *SQLite) take(ctx context.Context) (func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := s.usable(); err != nil {
		s.turn <- struct{}{}
		return nil, err
	}
	return func() { s.turn <- struct{}{} }, nil
}
