package shelf

import (
	"context"
	"time"
)

// Store is the images on the shelf, and the disk that they lie on.
type Store interface {
	// Usage returns the bytes of the disk that are free, and all of them; false if unknown.
	Usage() (free, size int64, ok bool)
	// List returns the images on the shelf.
	List(ctx context.Context) ([]Shelved, error)
	// Remove takes an image from the shelf.
	Remove(ctx context.Context, tag string) error
	// Touch notes that an image is used now: it gets its tag anew.
	Touch(ctx context.Context, id, tag string) error
}

// Shelved is an image on the shelf.
type Shelved struct {
	Tag   string
	Used  time.Time
	Size  int64 // bytes
	InUse bool  // a container is made of it
}
