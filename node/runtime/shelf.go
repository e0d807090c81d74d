package runtime

import (
	"context"
	"time"
)

// Shelver is the ability to list and remove the images that stay after the executions for which they were brought.
type Shelver interface {
	// Shelved lists the images, in no order.
	Shelved(ctx context.Context) ([]ShelvedImage, error)
	// Unshelve removes an image by its ID. It returns ErrNoImage for an unknown ID, and ErrImageUsed for an image of a
	// container or with a recent use.
	Unshelve(ctx context.Context, id string) error
}

// ShelvedImage is an image that stays.
type ShelvedImage struct {
	ID     string    // of the runtime's choice: several images may have one digest
	Digest string    // by which executions named it: "sha256:…"
	Size   int64     // unpacked, bytes; several images may share layers
	Used   time.Time // last
	InUse  bool      // a container is made of it
	// Open means that its registry gave it to this machine without credentials.
	Open bool
}
