package runtime

import (
	"context"
	"io"
	"strings"

	"github.com/starling-network/starling/market/images"
)

// A pushed image is one that no registry has: its buyer's peer has its files, the parts. Its name is
//
//	pushed.invalid/NAME[:TAG]@sha256:DIGEST of the manifest
//
// with the registry images.Pushed, which no host can be. NAME and TAG are only for people.

const (
	// MaxImageParts bounds the parts of an image: manifest, configuration, and as many layers as an engine can stack.
	MaxImageParts = 2 + 125
	// MaxImageBytes bounds the parts of an image together.
	MaxImageBytes = 64 << 30
	// MaxManifest bounds the manifest of a pushed image, bytes.
	MaxManifest = 4 << 20
)

// PushedDigest returns the SHA-256 of a pushed image's manifest, hexadecimal. ok is false for other images.
func PushedDigest(image string) (digest string, ok bool) {
	if !images.IsPushed(image) || CheckImage(image) != nil {
		return "", false
	}
	_, digest, _ = strings.Cut(image, "@sha256:")
	return digest, true
}

// Parts are the parts of a pushed image, by their SHA-256, hexadecimal.
type Parts interface {
	// Digests lists the parts, in no order.
	Digests() []string
	// Open brings a part of at most max bytes to this machine and returns its content and size. The content may be
	// another one than the digest's. Errors are those of files from the buyer.
	Open(ctx context.Context, digest string, max int64) (content io.ReadCloser, size int64, err error)
}

// Loader is the ability to run pushed images.
type Loader interface {
	// Load makes a pushed image of its parts, unless this machine has it, and checks all their digests: the parts must
	// be exactly the manifest and the files in it. progress is optional; it is called with the bytes done and known so
	// far. It returns ErrBadImage for other parts, and the errors of Parts.
	Load(ctx context.Context, image string, parts Parts, progress func(done, total int64)) error
}
