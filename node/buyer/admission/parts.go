package admission

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/fetch"
	work "github.com/starling-network/starling/node/workload"
)

// withParts returns the job with the parts of its pushed image, which are in the image's manifest on this peer. The key
// must have the manifest: its errors name files in it.
func (b Rules) withParts(spec job.Job, key string) (job.Job, error) {
	digest, pushed := runtime.PushedDigest(spec.Image)
	if !pushed {
		return spec, nil
	}
	text, err := b.manifest(digest, key)
	if err != nil {
		return spec, fmt.Errorf("%w: %w: %s: %w", record.ErrRefused, record.ErrImage, spec.Image, err)
	}
	m, err := fetch.ReadManifest(text, runtime.MaxImageBytes)
	if err != nil {
		return spec, fmt.Errorf("%w: %w: %s: %w", record.ErrRefused, record.ErrImage, spec.Image, err)
	}
	sizes := m.Sizes()
	sizes[digest] = int64(len(text))
	if spec, err = spec.WithImageParts(sizes); err != nil {
		return spec, fmt.Errorf("%w: %w: %s: %w", record.ErrRefused, record.ErrImage, spec.Image, err)
	}
	return spec, nil
}

// manifest returns the manifest of a pushed image.
func (b Rules) manifest(digest, key string) ([]byte, error) {
	var h sign.Hash
	if _, err := hex.Decode(h[:], []byte(digest)); err != nil {
		return nil, err
	}
	c, err := work.CIDOf(h)
	if err != nil {
		return nil, err
	}
	if !b.Blobs.Has(c) || key != "" && !b.Holder.Holds(key, c) {
		return nil, errNotPushed
	}
	path, err := b.Blobs.Path(c)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err == nil && st.Size() > runtime.MaxManifest {
		err = fmt.Errorf("manifest: too large: got %d bytes, want at most %d", st.Size(), runtime.MaxManifest)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

var errNotPushed = errors.New("the image is not on this peer: push it again")
