// Package tee has readers of blobs that are on their way: a reader gets the bytes that a transfer hashes, and its end
// with io.EOF only once their digest is known to be right.
package tee

import (
	"errors"
	"hash"
	"io"
	"slices"
	"sync"

	"github.com/ipfs/go-cid"
)

// ErrNone is the error of a reader whose blob did not come.
var ErrNone = errors.New("no transfer of the blob began")

// Table has the readers of blobs that no transfer brings yet, one of each. Its zero value is empty.
type Table struct{ waiting sync.Map }

// Reader reads a blob while it comes. A transfer waits for its reader, which holds nothing in memory.
type Reader struct {
	*io.PipeReader
	w     *io.PipeWriter
	t     *Table
	c     cid.Cid
	alone string
}

// Open returns a reader of the next transfer of a blob. If there is such a reader already, the new one has no bytes.
// alone is the holder of the blob if nobody else needs it.
func (t *Table) Open(c cid.Cid, alone string) *Reader {
	r := &Reader{t: t, c: c, alone: alone}
	r.PipeReader, r.w = io.Pipe()
	t.waiting.LoadOrStore(c, r)
	return r
}

// End ends the reader with ErrNone, unless a transfer has ended it before.
func (r *Reader) End() {
	r.t.waiting.CompareAndDelete(r.c, r)
	_ = r.w.CloseWithError(ErrNone)
}

// Along returns a hash for a transfer of a blob from its first byte on, which has a waiting reader read all bytes too.
// Without one it is sum. alone means that the transfer is for one of the holders, and the reader needs the blob alone.
// end is called with the error of the transfer.
func (t *Table) Along(c cid.Cid, holders []string, sum hash.Hash) (_ hash.Hash, alone bool, end func(error)) {
	found, ok := t.waiting.LoadAndDelete(c)
	if !ok {
		return sum, false, func(error) {}
	}
	r := found.(*Reader)
	return teed{sum, r.w}, slices.Contains(holders, r.alone), func(err error) { _ = r.w.CloseWithError(err) }
}

// teed is a hash that writes to a pipe too, until its reader is closed.
type teed struct {
	hash.Hash
	w *io.PipeWriter
}

// Write implements io.Writer.
func (t teed) Write(p []byte) (int, error) {
	_, _ = t.w.Write(p) // the reader knows its own error
	return t.Hash.Write(p)
}
