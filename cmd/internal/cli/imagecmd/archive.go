package imagecmd

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
)

const (
	// maxDescription bounds one file of an archive that describes an image, bytes, and maxDescriptions all of them.
	maxDescription  = 16 << 20
	maxDescriptions = 256 << 20
	// smallest is the size of the smallest tar archive, bytes.
	smallest = 1 << 10
)

// part is a file of an image, by its content.
type part struct {
	Digest string // SHA-256, hexadecimal
	Size   int64
	Media  types.MediaType // of a layer
}

// partOf is the part with a small content.
func partOf(b []byte) part {
	sum := sha256.Sum256(b)
	return part{Digest: hex.EncodeToString(sum[:]), Size: int64(len(b))}
}

// storing stores a part with the content of r.
type storing func(ctx context.Context, p part, r io.ReadSeeker) error

// archive is an archive of an image as engines write it, of which layers are stored while it is read.
//
//	docker save, old engines   manifest.json, HEX.json, HEX/layer.tar; a link stands for a repeated layer
//	docker save, new engines   manifest.json, index.json, blobs/sha256/HEX
//	OCI layout                 index.json, blobs/sha256/HEX
type archive struct {
	layers       map[string]part   // by name
	descriptions map[string][]byte // by name: JSON, and other small files
	links        map[string]string // by name
	left         int64             // bytes for descriptions
}

// image is an image in an archive, with stored layers.
type image struct {
	Name     string // of the archive; may be empty
	Platform string // linux/amd64
	Config   []byte
	Manifest []byte
	Layers   []part
}

// readArchive reads an image from an archive, which may be compressed. Uncompressed layers are compressed.
func readArchive(ctx context.Context, r io.Reader, store storing) (image, error) {
	a := archive{map[string]part{}, map[string][]byte{}, map[string]string{}, maxDescriptions}
	whole, err := unpacked(bufio.NewReaderSize(r, 1<<20))
	if err != nil {
		return image{}, err
	}
	for t := tar.NewReader(whole); ; {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return image{}, fmt.Errorf("reading the archive: %w", err)
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			err = a.file(ctx, name, h.Size, t, store)
		case tar.TypeSymlink:
			a.links[name] = path.Join(path.Dir(name), h.Linkname)
		case tar.TypeLink:
			a.links[name] = path.Clean(h.Linkname)
		}
		if err != nil {
			return image{}, err
		}
	}
	if _, err := io.Copy(io.Discard, whole); err != nil { // the writer may wait to be read to its end
		return image{}, fmt.Errorf("reading the archive: %w", err)
	}
	return a.image(ctx, store)
}

// unpacked returns the content of a file that may be compressed with gzip.
func unpacked(r *bufio.Reader) (io.Reader, error) {
	if magic, _ := r.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return gzip.NewReader(r)
	}
	return r, nil
}

// file takes in one file of the archive.
func (a *archive) file(ctx context.Context, name string, size int64, r io.Reader, store storing) error {
	b := bufio.NewReader(r)
	first, _ := b.Peek(1)
	json := bytes.Equal(first, []byte{'{'}) || bytes.Equal(first, []byte{'['})
	if size < smallest || size <= maxDescription && json {
		if a.left -= size; a.left < 0 {
			return fmt.Errorf("the archive's descriptions of images: over %d MiB", maxDescriptions>>20)
		}
		text, err := io.ReadAll(b)
		a.descriptions[name] = text
		return err
	}
	p, err := layerPart(ctx, b, store)
	if err != nil {
		return fmt.Errorf("layer %s: %w", name, err)
	}
	a.layers[name] = p
	return nil
}

// layerPart stores a layer, compressed. A file has it until its digest is known.
func layerPart(ctx context.Context, r *bufio.Reader, store storing) (part, error) {
	f, err := os.CreateTemp("", "starling-layer-")
	if err != nil {
		return part{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sum := sha256.New()
	p, err := pack(io.MultiWriter(f, sum), r)
	if err != nil {
		return p, err
	}
	p.Digest = hex.EncodeToString(sum.Sum(nil))
	if p.Size, err = f.Seek(0, io.SeekCurrent); err != nil {
		return p, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return p, err
	}
	return p, store(ctx, p, f)
}

// pack copies a layer, compressed; equal layers become equal files.
func pack(w io.Writer, r *bufio.Reader) (p part, err error) {
	switch magic, _ := r.Peek(4); {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		p.Media = types.OCILayer
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		p.Media = types.OCILayerZStd
	default:
		z := gzip.NewWriter(w)
		if _, err := io.Copy(z, r); err != nil {
			return p, err
		}
		return part{Media: types.OCILayer}, z.Close()
	}
	_, err = io.Copy(w, r)
	return p, err
}

// image finds the archive's image.
func (a *archive) image(ctx context.Context, store storing) (image, error) {
	var i image
	config, layers, err := a.described(&i)
	if err != nil {
		return i, err
	}
	if i.Config = a.descriptions[a.resolve(config)]; i.Config == nil {
		return i, fmt.Errorf("the archive's image has no configuration %.200s", config)
	}
	var c struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
		RootFS       struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(i.Config, &c); err != nil || len(c.RootFS.DiffIDs) != len(layers) {
		return i, errors.Join(errors.New("the configuration of the archive's image does not match its layers"), err)
	}
	i.Platform = c.OS + "/" + c.Architecture
	for _, name := range layers {
		p, err := a.layer(ctx, a.resolve(name), store)
		if err != nil {
			return i, err
		}
		i.Layers = append(i.Layers, p)
	}
	i.Manifest, err = manifestOf(partOf(i.Config), i.Layers)
	return i, err
}

// resolve follows a link.
func (a *archive) resolve(name string) string {
	name = path.Clean(name)
	for range 10 {
		to, ok := a.links[name]
		if !ok {
			break
		}
		name = to
	}
	return name
}

// layer returns a layer that is stored, or stores one that was taken for a description.
func (a *archive) layer(ctx context.Context, name string, store storing) (part, error) {
	if p, ok := a.layers[name]; ok {
		return p, nil
	}
	text, ok := a.descriptions[name]
	if !ok {
		return part{}, fmt.Errorf("the archive has no layer %.200s", name)
	}
	p, err := layerPart(ctx, bufio.NewReader(bytes.NewReader(text)), store)
	a.layers[name] = p
	return p, err
}

// manifestOf makes the manifest of an image; equal images have equal ones.
func manifestOf(config part, layers []part) ([]byte, error) {
	describe := func(p part, media types.MediaType) v1.Descriptor {
		return v1.Descriptor{MediaType: media, Size: p.Size, Digest: v1.Hash{Algorithm: "sha256", Hex: p.Digest}}
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Layers: []v1.Descriptor{},
		Config: describe(config, types.OCIConfigJSON)}
	for _, l := range layers {
		m.Layers = append(m.Layers, describe(l, l.Media))
	}
	return json.Marshal(m)
}
