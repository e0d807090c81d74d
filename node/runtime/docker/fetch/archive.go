package fetch

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// chunk is how much is read, hashed and handed on at a time.
const chunk = 256 << 10

// Write writes the image to w as an archive in which engines find it under a tag, old ones by manifest.json and new
// ones by index.json:
//
//	blobs/sha256/<hex>   manifest, configuration, each layer as it comes
//	oci-layout, index.json, manifest.json
//
// Layers may have limit bytes in all, unpacked. Before the archive's last part, without which it is not complete,
// complete is called with the unpacked size of the layers, and may refuse. progress, if not nil, is called with the
// packed bytes of the layers that were read and the total. Errors are a *runtime.Failure, complete's, w's or ctx's.
func (i *Image) Write(
	ctx context.Context, w io.Writer, tag string, limit int64, progress func(done, total int64),
	complete func(unpacked int64) error,
) error {
	t := tar.NewWriter(w)
	for _, dir := range []string{"blobs/", "blobs/sha256/"} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := file(t, blobName(i.Manifest), i.manifest); err != nil {
		return err
	}
	if err := file(t, blobName(i.Config), i.JSON); err != nil {
		return err
	}
	unpacked, err := i.writeLayers(ctx, t, limit, progress)
	if err != nil {
		return err
	}
	if err := complete(unpacked); err != nil {
		return err
	}
	return i.writeEnd(t, tag)
}

// writeLayers writes each layer once, and returns the unpacked size of all; a layer with several entries counts several
// times.
func (i *Image) writeLayers(
	ctx context.Context, t *tar.Writer, limit int64, progress func(done, total int64),
) (unpacked int64, err error) {
	sizes, total := map[v1.Hash]int64{}, int64(0)
	for _, l := range i.layers {
		if _, again := sizes[l.Digest]; !again {
			sizes[l.Digest], total = -1, total+l.Size
		}
	}
	i.source.expect(ctx, total)
	done := int64(0)
	tell := func(n int64) {
		if done += n; progress != nil {
			progress(done, total)
		}
	}
	tell(0)
	for _, l := range i.layers {
		if sizes[l.Digest] < 0 {
			if sizes[l.Digest], err = i.writeLayer(ctx, t, l, limit-unpacked, tell); err != nil {
				return 0, err
			}
		}
		if unpacked += sizes[l.Digest]; unpacked > limit {
			return 0, tooLarge(limit)
		}
	}
	return unpacked, nil
}

// writeLayer writes a layer as it comes and checks both of its digests; it returns its unpacked size.
func (i *Image) writeLayer(ctx context.Context, t *tar.Writer, l layer, limit int64, tell func(int64)) (int64, error) {
	h := tar.Header{Typeflag: tar.TypeReg, Name: blobName(l.Digest), Mode: 0o644, Size: l.Size}
	if err := t.WriteHeader(&h); err != nil {
		return 0, err
	}
	b, err := i.source.layer(ctx, l.Descriptor)
	if err != nil {
		return 0, i.source.failed(ctx, err)
	}
	defer b.Close()
	m := newMeter(limit)
	defer m.stop()
	packed, err := v1.Hasher(l.Digest.Algorithm)
	if err != nil {
		return 0, err
	}
	buf := make([]byte, chunk)
	for {
		n, err := b.Read(buf)
		if n > 0 {
			packed.Write(buf[:n])
			if _, err := m.Write(buf[:n]); err != nil {
				return 0, err
			}
			if _, err := t.Write(buf[:n]); err != nil {
				return 0, err
			}
			tell(int64(n))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, i.source.failed(ctx, err)
		}
	}
	if got := fmt.Sprintf("%x", packed.Sum(nil)); got != l.Digest.Hex {
		return 0, bad("a layer does not match its digest", fmt.Errorf("layer %s: digest: got %s", l.Digest, got))
	}
	size, digest, err := m.finish()
	if err != nil {
		return 0, err
	}
	if digest != l.unpacked.Hex {
		return 0, bad("an unpacked layer does not match the image's configuration",
			fmt.Errorf("layer %s: unpacked digest: got %s, want %s", l.Digest, digest, l.unpacked))
	}
	return size, nil
}

// writeEnd writes the part that makes the files an image.
func (i *Image) writeEnd(t *tar.Writer, tag string) error {
	paths := []string{}
	for _, l := range i.layers {
		paths = append(paths, blobName(l.Digest))
	}
	type m = map[string]any
	for _, f := range []struct {
		name string
		text any
	}{
		{"oci-layout", m{"imageLayoutVersion": "1.0.0"}},
		{"index.json", m{"schemaVersion": 2, "manifests": []m{{
			"mediaType": i.media, "digest": i.Manifest.String(), "size": len(i.manifest),
			"annotations": m{"io.containerd.image.name": tag},
		}}}},
		{"manifest.json", []m{{"Config": blobName(i.Config), "RepoTags": []string{tag}, "Layers": paths}}},
	} {
		b, err := json.Marshal(f.text)
		if err != nil {
			return err
		}
		if err := file(t, f.name, b); err != nil {
			return err
		}
	}
	return t.Close()
}

func file(t *tar.Writer, name string, content []byte) error {
	h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}
	if err := t.WriteHeader(&h); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}

func blobName(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

func tooLarge(limit int64) error {
	return bad(fmt.Sprintf("unpacked size: over %d MiB", limit>>20), nil)
}
