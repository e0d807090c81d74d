package tranche

import "errors"

var (
	// ErrCount: a tranche has 1 to 256 leaves.
	ErrCount = errors.New("tranche: 1 to 256 leaves")
	// ErrIndex: a leaf bears another index than its place, or the tranche has no such leaf.
	ErrIndex = errors.New("tranche: wrong leaf index")
	// ErrDuplicate: a lease is in the tranche twice, so it could be claimed twice.
	ErrDuplicate = errors.New("tranche: lease appears twice")
	// ErrLength: the path is longer or shorter than the leaf's place demands.
	ErrLength = errors.New("tranche: path has the wrong length")
	// ErrOverflow: two sums do not fit 64 bits together.
	ErrOverflow = errors.New("tranche: sum overflows")
	// ErrSum: the sums on the path do not add up to the root's.
	ErrSum = errors.New("tranche: sums do not add up to the root's")
	// ErrRoot: the path does not lead to the root that was given.
	ErrRoot = errors.New("tranche: path does not lead to this root")
)
