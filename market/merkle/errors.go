package merkle

import "errors"

var (
	// ErrIndex: the tree has no leaf of that number.
	ErrIndex = errors.New("merkle: no such leaf")
	// ErrLength: the path is longer or shorter than the leaf's place in the tree demands.
	ErrLength = errors.New("merkle: path has the wrong length")
	// ErrRoot: the path does not lead to the root that was given.
	ErrRoot = errors.New("merkle: path does not lead to this root")
	// ErrMalformed: the bytes are not a proof.
	ErrMalformed = errors.New("merkle: malformed proof")
)
