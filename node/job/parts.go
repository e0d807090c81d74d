package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-network/starling/node/runtime"
)

// PartScheme begins the sources of a pushed image's parts; the SHA-256 follows. Such sources are in Blobs alone, where
// the peer that takes the job adds them.
const PartScheme = "image:"

// ImageParts lists the sources of the parts of the job's pushed image, sorted.
func (j Job) ImageParts() (parts []string) {
	if _, pushed := runtime.PushedDigest(j.Image); !pushed {
		return nil
	}
	for source := range j.Blobs {
		if strings.HasPrefix(source, PartScheme) {
			parts = append(parts, source)
		}
	}
	slices.Sort(parts)
	return parts
}

// WithImageParts returns the job with the parts of its pushed image, the sizes by SHA-256, instead of those that it
// had. It returns ErrInvalid if there are too many.
func (j Job) WithImageParts(sizes map[string]int64) (Job, error) {
	if len(sizes) > runtime.MaxImageParts {
		return j, fmt.Errorf("%w: image: got %d parts, want at most %d", ErrInvalid, len(sizes), runtime.MaxImageParts)
	}
	blobs := maps.Clone(j.Blobs)
	if blobs == nil {
		blobs = map[string]Blob{}
	}
	maps.DeleteFunc(blobs, func(source string, _ Blob) bool { return strings.HasPrefix(source, PartScheme) })
	for digest, size := range sizes {
		c, err := sumCID(digest)
		if err != nil {
			return j, fmt.Errorf("%w: image: %w", ErrInvalid, err)
		}
		blobs[PartScheme+digest] = Blob{CID: c, Size: size}
	}
	j.Blobs = blobs
	return j, nil
}

// isPart reports whether the content of a part's source is that of its digest.
func (b Blob) isPart(source string) bool {
	c, err := sumCID(strings.TrimPrefix(source, PartScheme))
	return err == nil && c == b.CID && b.Size > 0 && !b.Tree && len(b.URLs) == 0
}
