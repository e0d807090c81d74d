package runtime

import (
	"context"
	"fmt"
	"time"
)

// Registries resolves the tags of images to digests.
type Registries interface {
	// Resolve returns the digest that an image's name without one has now.
	Resolve(ctx context.Context, image string, auth *RegistryAuth) (digest string, err error)
}

// pinTime bounds the search for an image's digest.
const pinTime = 30 * time.Second

// Pin adds the digest to an image's name that has none, so that all ranks run one image even if the tag moves.
func Pin(ctx context.Context, r Registries, image string, auth *RegistryAuth) (string, error) {
	if image == "" || CheckImage(image) == nil {
		return image, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pinTime)
	defer cancel()
	digest, err := r.Resolve(ctx, image, auth)
	if err != nil {
		return "", fmt.Errorf("%s: %w", image, err)
	}
	return image + "@" + digest, nil
}
