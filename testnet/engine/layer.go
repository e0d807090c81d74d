//go:build linux

package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Layer is a layer of an image in a file of this machine: an uncompressed tar, because compression between processes of
// one machine costs time.
type Layer struct {
	path string
	hash v1.Hash
	size int64
}

var _ v1.Layer = (*Layer)(nil)

// OpenLayer reads a tar file to compute its digest.
func OpenLayer(path string) (*Layer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return nil, fmt.Errorf("reading the layer %s: %w", path, err)
	}
	return &Layer{path: path, size: n, hash: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}}, nil
}

// Digest is the digest of the file.
func (l *Layer) Digest() (v1.Hash, error) { return l.hash, nil }

// DiffID is the digest of the tar, which is the file.
func (l *Layer) DiffID() (v1.Hash, error) { return l.hash, nil }

// Compressed returns the file.
func (l *Layer) Compressed() (io.ReadCloser, error) { return os.Open(l.path) }

// Uncompressed returns the file.
func (l *Layer) Uncompressed() (io.ReadCloser, error) { return os.Open(l.path) }

// Size is the size of the file in bytes.
func (l *Layer) Size() (int64, error) { return l.size, nil }

// MediaType is the type of a plain tar.
func (l *Layer) MediaType() (types.MediaType, error) { return types.OCIUncompressedLayer, nil }

// blobs are a registry's blobs: pushed blobs in memory, and files on disk.
type blobs struct {
	memory interface {
		registry.BlobHandler
		registry.BlobStatHandler
		registry.BlobPutHandler
	}
	mu    sync.Mutex
	files map[v1.Hash]*Layer
}

func newBlobs() *blobs {
	b := &blobs{files: map[v1.Hash]*Layer{}}
	b.memory = registry.NewInMemoryBlobHandler().(interface {
		registry.BlobHandler
		registry.BlobStatHandler
		registry.BlobPutHandler
	})
	return b
}

func (b *blobs) add(l *Layer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files[l.hash] = l
}

func (b *blobs) file(h v1.Hash) *Layer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files[h]
}

// Get opens a blob.
func (b *blobs) Get(ctx context.Context, repo string, h v1.Hash) (io.ReadCloser, error) {
	if l := b.file(h); l != nil {
		return l.Compressed()
	}
	return b.memory.Get(ctx, repo, h)
}

// Stat returns the size of a blob in bytes.
func (b *blobs) Stat(ctx context.Context, repo string, h v1.Hash) (int64, error) {
	if l := b.file(h); l != nil {
		return l.size, nil
	}
	return b.memory.Stat(ctx, repo, h)
}

// Put stores a pushed blob.
func (b *blobs) Put(ctx context.Context, repo string, h v1.Hash, content io.ReadCloser) error {
	return b.memory.Put(ctx, repo, h, content)
}
