package harness

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

// Registry is a registry whose images all have the same layers. It counts the bytes that it sends.
type Registry struct {
	layers map[string][]byte // by digest
	order  []string
	mib    time.Duration // to send a MiB
	sent   atomic.Int64
}

// NewRegistry returns a registry that takes a time to send a MiB.
func NewRegistry(mib time.Duration, layers ...[]byte) *Registry {
	r := &Registry{layers: map[string][]byte{}, mib: mib}
	for _, l := range layers {
		h := sha256.Sum256(l)
		d := hex.EncodeToString(h[:])
		r.layers[d], r.order = l, append(r.order, d)
	}
	return r
}

// stored is a layer in a registry.
type stored struct {
	registry *Registry
	digest   string
}

// Name implements runtime.Origin.
func (s stored) Name() string { return "https://docker.io/layers/" + s.digest }

// Read implements runtime.Origin.
func (s stored) Read(_ context.Context, offset, length int64) (io.ReadCloser, error) {
	return &sending{s.registry, bytes.NewReader(s.registry.layers[s.digest][offset : offset+length])}, nil
}

// sending is a part of a layer that a registry sends.
type sending struct {
	registry *Registry
	r        io.Reader
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.registry.sent.Add(int64(n))
	time.Sleep(s.registry.mib * time.Duration(n) >> 20)
	return n, err
}

func (*sending) Close() error { return nil }

// PullVia pulls an image with its layers through via, if there is a registry.
func (e *engine) PullVia(
	ctx context.Context, image string, via runtime.Via, progress func(done, total int64),
) error {
	if e.registry == nil || e.HasImage(ctx, image) {
		return e.Pull(ctx, image, nil, progress)
	}
	var all []runtime.Layer
	for _, d := range e.registry.order {
		all = append(all, runtime.Layer{
			Digest: d, Size: int64(len(e.registry.layers[d])), From: stored{e.registry, d},
		})
	}
	via.Begin(ctx, all)
	if e.spoil != nil {
		var wg sync.WaitGroup
		for _, l := range all {
			wg.Go(func() { e.spoil(ctx, via, l) })
		}
		wg.Wait()
		return e.Pull(ctx, image, nil, progress)
	}
	for _, l := range all {
		content := via.Open(ctx, l)
		if content == nil {
			var err error
			if content, err = l.From.Read(ctx, 0, l.Size); err != nil {
				return err
			}
		}
		sum := sha256.New()
		_, err := io.Copy(sum, content)
		_ = content.Close()
		if err != nil {
			return err
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != l.Digest {
			return fmt.Errorf("%w: layer: digest: got %s, want %s", runtime.ErrBadImage, got, l.Digest)
		}
	}
	return e.Pull(ctx, image, nil, progress)
}
