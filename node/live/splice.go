package live

import (
	"context"
	"errors"
	"io"
	"sync"
)

// Conn is one end of a stream; its directions end one by one.
type Conn interface {
	io.ReadWriteCloser
	// CloseWrite signals the end of the bytes to the other end.
	CloseWrite() error
}

// Splice copies bytes both ways between two connections until both directions have ended, and closes both. An end in
// one direction is passed on where the other connection can close one half. When one connection breaks, the other is
// broken off too, where it can be: its other end must not take a part for the whole. The error is why b broke; it is
// nil when a did, and at the end of ctx, which closes both.
func Splice(ctx context.Context, a, b io.ReadWriteCloser) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	stop := context.AfterFunc(inner, func() {
		defer close(ended)
		broken, ok := errors.AsType[*brokenError](context.Cause(inner))
		if !ok {
			_ = a.Close()
			_ = b.Close()
			return
		}
		abort(b, broken)
		abort(a, broken)
	})
	defer func() {
		if !stop() {
			<-ended // before the caller closes them its way
			return
		}
		_ = a.Close()
		_ = b.Close()
	}()
	var wg sync.WaitGroup
	var once sync.Once
	var why error
	copyHalf := func(to, from io.ReadWriteCloser, fromB bool) {
		w := &sink{Writer: to}
		_, err := io.Copy(w, onlyReader{from})
		if half, ok := to.(interface{ CloseWrite() error }); err == nil && ok {
			w.err = half.CloseWrite()
			err = w.err
		}
		if err == nil {
			return
		}
		once.Do(func() { // later errors are caused by this close
			if fromB == (w.err == nil) && ctx.Err() == nil {
				why = err
			}
			cancel(&brokenError{err})
		})
	}
	wg.Go(func() { copyHalf(a, b, true) })
	wg.Go(func() { copyHalf(b, a, false) })
	wg.Wait()
	return why
}

// brokenError is why one of the two connections broke.
type brokenError struct{ error }

// abort ends a connection so that its other end sees that it is no orderly end, where that can be.
func abort(c io.Closer, why *brokenError) {
	switch c := c.(type) {
	case interface{ Fail(error) }:
		c.Fail(why.error)
		return
	case interface{ Abort() }:
		c.Abort()
		return
	case interface{ SetLinger(sec int) error }:
		_ = c.SetLinger(0) // TCP: a reset
	}
	_ = c.Close()
}

// sink remembers that it was the writing that failed. It has none of the shortcuts of io.Copy, which some connections
// take to where deadlines do not reach.
type sink struct {
	io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

type onlyReader struct{ io.Reader }
