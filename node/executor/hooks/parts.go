package hooks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
)

// load makes a pushed image of its parts. The image's name here has the peer that brought it instead of the buyer's
// words: a peer that only knows the digest of another's image has to send all parts, as for any file.
func (p Program) load(ctx context.Context, e *executor.Execution, l *executor.Launch, digest string) error {
	loader, ok := l.Runtime.(runtime.Loader)
	if !ok {
		return workload.Bad("image: runtime %q runs images of registries alone", e.Work.Runtime)
	}
	e.Say("fetching " + e.Work.Image)
	parts, err := p.parts(e)
	if err != nil {
		return err
	}
	l.Spec.Image = broughtBy(e.Commander(), digest)
	err = loader.Load(ctx, l.Spec.Image, parts, e.Progress)
	var f *runtime.Failure
	if errors.As(err, &f) {
		return &runtime.Failure{Class: f.Class, Of: e.Work.Image, Advice: f.Advice, Cause: f.Cause}
	}
	return err
}

// broughtBy is the name of a pushed image on this machine.
func broughtBy(id peer.ID, digest string) string {
	by := sha256.Sum256([]byte(id))
	return images.Pushed + "/" + hex.EncodeToString(by[:16]) + "@sha256:" + digest
}

// parts are the parts of an execution's image.
type parts struct {
	Program
	from  peer.ID
	work  *nodepb.Workload
	files map[string]*nodepb.Blob // by digest
}

var _ runtime.Parts = parts{}

func (p Program) parts(e *executor.Execution) (parts, error) {
	out := parts{p, e.Commander(), e.Work, map[string]*nodepb.Blob{}}
	for _, b := range e.Work.ImageParts {
		digest, err := workload.PartDigest(b)
		if err != nil {
			return out, workload.Bad("image_parts: %v", err)
		}
		out.files[digest] = b
	}
	return out, nil
}

// Digests implements runtime.Parts.
func (p parts) Digests() (all []string) {
	for d := range p.files {
		all = append(all, d)
	}
	return all
}

// Open implements runtime.Parts: the part comes from the execution's buyer, and goes through the store of blobs.
func (p parts) Open(ctx context.Context, digest string, max int64) (io.ReadCloser, int64, error) {
	b, ok := p.files[digest]
	if !ok {
		return nil, 0, badPart("part sha256:%.64s: not in image_parts", digest)
	}
	id, err := workload.CID(b)
	if err != nil {
		return nil, 0, err
	}
	if b.Size > uint64(max) {
		return nil, 0, badPart("part sha256:%.64s: size: got %d bytes, want at most %d", digest, b.Size, max)
	}
	if err := p.From.Obtain(ctx, workload.At(p.from, p.work, b), id, int64(b.Size)); err != nil {
		return nil, 0, fmt.Errorf("fetching a part of the image: %w", err)
	}
	path, err := p.Blobs.Path(id)
	if err != nil {
		return nil, 0, fmt.Errorf("fetching a part of the image: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("fetching a part of the image: %w", err)
	}
	st, err := f.Stat()
	if err == nil && st.Size() != int64(b.Size) {
		err = badPart("part sha256:%.64s: size: got %d bytes, want %d", digest, st.Size(), b.Size)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// badPart is an error that would recur at every provider.
func badPart(format string, args ...any) error {
	return &runtime.Failure{Class: runtime.ErrBadImage, Advice: fmt.Sprintf(format, args...)}
}
