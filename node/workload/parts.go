package workload

import (
	"encoding/hex"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
)

// checkParts holds the parts of a pushed image to the rules. No other image has any.
func checkParts(w *nodepb.Workload, rt runtime.Runtime) error {
	digest, pushed := runtime.PushedDigest(w.Image)
	_, loads := rt.(runtime.Loader)
	switch n := len(w.ImageParts); {
	case !pushed && n > 0:
		return Bad("image_parts: image %.200s is one of a registry", w.Image)
	case !pushed:
		return nil
	case !loads:
		return Bad("image: runtime %q runs images of registries alone", w.Runtime)
	case n < 2 || n > runtime.MaxImageParts:
		return Bad("image_parts: got %d, want 2 to %d", n, runtime.MaxImageParts)
	}
	seen, left := map[string]bool{}, uint64(runtime.MaxImageBytes)
	for _, b := range w.ImageParts {
		d, err := PartDigest(b)
		switch {
		case err != nil:
			return Bad("image_parts: %v", err)
		case seen[d]:
			return Bad("image_parts: sha256:%s is there twice", d)
		case b.Tree || b.Remote || len(b.Urls) > 0:
			return Bad("image_parts: sha256:%s: want a file of the buyer's peer", d)
		case b.Size == 0:
			return Bad("image_parts: sha256:%s: no size", d)
		case b.Size > left:
			return Bad("image_parts: more than %d bytes", int64(runtime.MaxImageBytes))
		}
		seen[d], left = true, left-b.Size
	}
	if !seen[digest] {
		return Bad("image_parts: the manifest sha256:%s is missing", digest)
	}
	return nil
}

// PartDigest returns the SHA-256 of an image's part, hexadecimal.
func PartDigest(b *nodepb.Blob) (string, error) {
	h, err := content(b)
	return hex.EncodeToString(h[:]), err
}
