package imagecmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// usual is the platform of most providers.
const usual = "linux/amd64"

var errSeveral = errors.New("the archive has several images: save one, by its ID or its name with a tag")

// described returns the names of the files of the archive's image: of its configuration, and of its layers, the lowest
// first. It notes the image's name.
func (a *archive) described(i *image) (config string, layers []string, err error) {
	text, ok := a.descriptions["manifest.json"]
	if !ok {
		return a.layout()
	}
	var all []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return "", nil, fmt.Errorf("manifest.json of the archive: %w", err)
	}
	if len(all) == 0 {
		return "", nil, errors.New("the archive has no image")
	}
	if len(all) > 1 {
		return "", nil, errSeveral
	}
	if len(all[0].RepoTags) > 0 {
		i.Name = all[0].RepoTags[0]
	}
	return all[0].Config, all[0].Layers, nil
}

// layout is described for an OCI layout without manifest.json.
func (a *archive) layout() (config string, layers []string, err error) {
	found, err := a.manifests("index.json", 0)
	if err != nil {
		return "", nil, err
	}
	var of []v1.Descriptor
	for _, d := range found {
		if len(found) == 1 || d.Platform != nil && d.Platform.OS+"/"+d.Platform.Architecture == usual {
			of = append(of, d)
		}
	}
	if len(found) == 0 {
		return "", nil, errors.New("the file is no archive of an image: want one of docker save, or an OCI layout")
	}
	if len(of) != 1 {
		return "", nil, errSeveral
	}
	var m v1.Manifest
	if err := json.Unmarshal(a.descriptions[blobName(of[0].Digest)], &m); err != nil {
		return "", nil, fmt.Errorf("manifest %s of the archive: %w", of[0].Digest, err)
	}
	for _, l := range m.Layers {
		layers = append(layers, blobName(l.Digest))
	}
	return blobName(m.Config.Digest), layers, nil
}

// manifests lists the manifests of images in an index, and in the indexes in it.
func (a *archive) manifests(name string, depth int) (found []v1.Descriptor, err error) {
	text, ok := a.descriptions[name]
	if !ok || depth > 3 {
		return nil, nil
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("%.200s of the archive: %w", name, err)
	}
	for _, d := range index.Manifests {
		switch p := d.Platform; {
		case d.MediaType.IsIndex():
			more, err := a.manifests(blobName(d.Digest), depth+1)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		case p != nil && p.OS == "unknown": // an attestation
		case d.MediaType == types.OCIManifestSchema1, d.MediaType == types.DockerManifestSchema2:
			found = append(found, d)
		}
	}
	return found, nil
}

// blobName is the place of content in an OCI layout.
func blobName(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }
