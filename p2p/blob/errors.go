package blob

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	// ErrNotFound: the store does not have the blob.
	ErrNotFound = errors.New("blob not found")
	// ErrBadCID: not a CIDv1 of raw bytes under sha2-256.
	ErrBadCID = errors.New("not the CID of a blob")
	// ErrFull: the blob does not fit into the store's allowance; nothing was kept.
	ErrFull = errors.New("blob store is full")
	// ErrDiskFull: the disk is full. No partial blob is visible, and a fetch may be resumed.
	ErrDiskFull = errors.New("disk is full")
	// ErrTooLarge: the blob is larger than the caller allows.
	ErrTooLarge = errors.New("blob is too large")
	// ErrDigest: the peer sent bytes that are not the blob's.
	ErrDigest = errors.New("bytes do not match the digest")
	// ErrAlone: this peer is connected to no other one, so that an answer of none is no news about the asked one.
	ErrAlone = errors.New("this peer is connected to no other one")
	// ErrArchive: the blob is not an archive that may be unpacked.
	ErrArchive = errors.New("bad archive")
	// ErrTree: the folder holds something that an archive may not: a link, a device, a socket.
	ErrTree = errors.New("folder cannot be archived")
)

// diskError makes a full disk recognisable.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}
