package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
)

const (
	// imageHolder begins the holder of the manifest of a pushed image; the image's name follows, without registry and
	// digest.
	imageHolder = "image "
	// maxNames bounds the names of one manifest, and maxName their length, bytes.
	maxNames, maxName = 8, 120
)

// NameImage notes the name of a pushed image whose manifest is stored. The note stays as long as the manifest. It
// returns an *api.Error if the name is not that of this manifest.
func (f *Files) NameImage(text, image string) error {
	c, err := blob.Parse(text)
	if err != nil {
		return err
	}
	of, pushed := runtime.PushedDigest(image)
	name := strings.TrimPrefix(strings.TrimSuffix(image, "@sha256:"+of), images.Pushed+"/")
	if !pushed || of != digest(c) || len(name) > maxName {
		return &api.Error{Status: http.StatusBadRequest, Code: "bad_image", Message: fmt.Sprintf(
			"image %.200q: want %s/NAME@sha256:%s, NAME of at most %d bytes", image, images.Pushed, digest(c), maxName)}
	}
	holders, err := f.cfg.Blobs.Holders(c)
	if err != nil || len(named(holders)) >= maxNames {
		return err
	}
	return f.cfg.Blobs.Bring(c, imageHolder+name)
}

// named returns the names of pushed images among the holders of a blob.
func named(holders []string) (out []string) {
	for _, h := range holders {
		if name, ok := strings.CutPrefix(h, imageHolder); ok {
			out = append(out, name)
		}
	}
	return out
}

// Pushed lists and removes the images of a peer: those pushed for its own jobs, and those brought for jobs of others.
type Pushed struct {
	Files  *Files
	Others interface {
		Images(ctx context.Context) ([]api.ImageInfo, error)
		RemoveImage(ctx context.Context, id string) error
	}
}

// image is a pushed image and its parts.
type image struct {
	api.ImageInfo
	parts []cid.Cid // without the manifest
	of    cid.Cid   // manifest
}

// Images lists the pushed images, then the others.
func (p Pushed) Images(ctx context.Context) ([]api.ImageInfo, error) {
	all, err := p.all()
	if err != nil {
		return nil, err
	}
	out := []api.ImageInfo{}
	for _, i := range all {
		out = append(out, i.ImageInfo)
	}
	others, err := p.Others.Images(ctx)
	return append(out, others...), err
}

func (p Pushed) all() (out []image, err error) {
	stored, err := p.Files.stored()
	if err != nil {
		return nil, err
	}
	sizes := map[cid.Cid]int64{}
	for _, b := range stored {
		sizes[b.c] = b.Size
	}
	for _, b := range stored {
		names := named(b.Holders)
		if len(names) == 0 || b.Size > runtime.MaxManifest {
			continue
		}
		i := image{of: b.c, ImageInfo: api.ImageInfo{ID: digest(b.c), Digest: "sha256:" + digest(b.c), Size: b.Size,
			Used: b.Used, InUse: len(b.Needed) > 0, Names: names}}
		if i.parts, err = p.parts(b.c); err != nil {
			return nil, err
		}
		for _, c := range i.parts {
			size, here := sizes[c]
			i.Size += size
			i.Incomplete = i.Incomplete || !here
		}
		out = append(out, i)
	}
	return out, nil
}

// parts returns the parts of an image that its stored manifest lists. A file that is no manifest has none.
func (p Pushed) parts(manifest cid.Cid) (out []cid.Cid, err error) {
	f, err := p.Files.cfg.Blobs.Open(manifest)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, nil // removed meanwhile
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	type part struct {
		Digest string `json:"digest"`
	}
	var m struct {
		Config part   `json:"config"`
		Layers []part `json:"layers"`
	}
	text := json.NewDecoder(io.LimitReader(f, runtime.MaxManifest))
	if text.Decode(&m) != nil || len(m.Layers) > runtime.MaxImageParts {
		return nil, nil
	}
	seen := map[cid.Cid]bool{}
	for _, l := range append(m.Layers, m.Config) {
		c, err := workload.LayerCID(strings.TrimPrefix(l.Digest, "sha256:"))
		if err == nil && !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	return out, nil
}

// RemoveImage removes an image that nothing uses. Parts of other images, and of files that something needs, stay.
func (p Pushed) RemoveImage(ctx context.Context, id string) error {
	all, err := p.all()
	if err != nil {
		return err
	}
	var gone *image
	shared := map[cid.Cid]bool{}
	for n, i := range all {
		if i.ID == id {
			gone = &all[n]
			continue
		}
		for _, c := range i.parts {
			shared[c] = true
		}
	}
	switch {
	case gone == nil:
		return p.Others.RemoveImage(ctx, id)
	case gone.InUse:
		return fmt.Errorf("%w: a job of this peer needs it", runtime.ErrImageUsed)
	}
	free := []cid.Cid{gone.of}
	for _, c := range gone.parts {
		if !shared[c] {
			free = append(free, c)
		}
	}
	_, err = p.Files.Free(free)
	return err
}
