package blob

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/p2p/blob/remove"
	"github.com/starling-network/starling/p2p/blob/tee"
)

// Unpacking unpacks an archive while a transfer receives it:
//
//	UnpackAhead ── a transfer begins ──▶ its bytes are unpacked ── the digest is right ──▶ Finish: done
//	     │ the blob is there,                   │ the transfer fails, or the archive is bad:
//	     │ or its transfer is resumed           │ the directory is emptied
//	     └──────────────────────────────────────┴──▶ Finish unpacks the stored archive, if there is one
//
// The source may send false bytes. They are unpacked as strictly as any archive, and count only with the digest of the
// whole, as the blob itself.
type Unpacking struct {
	s   *Store
	ctx context.Context
	c   cid.Cid
	dir string
	max int64

	from *tee.Reader
	done chan struct{} // closed when the unpacking has ended
	n    int64         // use of max
	err  error         // if not nil, nothing of the transfer is in dir
	over bool          // Finish or Close was called
}

// run unpacks the bytes of a transfer.
func (u *Unpacking) run() {
	defer close(u.done)
	defer u.from.Close() // the transfer goes on
	defer context.AfterFunc(u.ctx, func() { _ = u.from.Close() })()
	u.n, u.err = unpackInto(u.ctx, bufio.NewReaderSize(u.from, copyBuffer), u.dir, u.max)
}

// Finish completes the directory once the archive is in the store. It returns the same as Unpack.
func (u *Unpacking) Finish() (int64, error) {
	if u.end(); u.err == nil {
		return u.n, nil
	}
	n, err := u.s.Unpack(u.ctx, u.c, u.dir, u.max)
	if errors.Is(err, ErrNotFound) && !errors.Is(u.err, tee.ErrNone) {
		err = fmt.Errorf("unpacking %s: %w", u.c, diskError(u.err))
	}
	return n, err
}

// Close empties the directory, unless Finish was called before.
func (u *Unpacking) Close() error {
	if u.over {
		return nil
	}
	if u.end(); u.err != nil {
		return nil
	}
	return remove.Empty(u.dir)
}

// end waits until nothing more is unpacked. A transfer that is over has ended the reader.
func (u *Unpacking) end() {
	u.over = true
	u.from.End()
	<-u.done
}
