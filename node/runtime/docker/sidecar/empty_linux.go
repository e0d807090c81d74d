package sidecar

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"sync"

	"github.com/docker/docker/api/types/image"

	"github.com/starling-network/starling/node/runtime/docker/engine"
)

// EmptyTag is the tag of the image of sidecars on an engine, which several peers may share.
const EmptyTag = "starling-sidecar:1"

// emptyTar is an archive of nothing: two blocks of zeros.
var emptyTar = make([]byte, 1024)

// emptyImage is the image of sidecars. It has no file and needs no download. A tenant's image would bring layers,
// links, volumes and variables that hooks read.
type emptyImage struct {
	mu sync.Mutex
	id string
}

// get finds the image, or makes it if it is missing; again, when the engine no longer has the one found before.
func (i *emptyImage) get(ctx context.Context, e *engine.Engine, again bool) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.id != "" && !again {
		return i.id, nil
	}
	if id := FoundEmpty(ctx, e); id != "" {
		i.id = id
		return id, nil
	}
	source := image.ImportSource{Source: bytes.NewReader(emptyTar), SourceName: "-"}
	stream, err := e.ImageImport(ctx, source, EmptyTag, image.ImportOptions{})
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(stream, 1<<20))
		_ = stream.Close()
	}
	if err != nil {
		return "", fmt.Errorf("making the image of sidecars: %w", e.Explain(err))
	}
	if i.id = FoundEmpty(ctx, e); i.id == "" {
		return "", fmt.Errorf("making the image of sidecars: the engine did not make %s of an empty archive", EmptyTag)
	}
	return i.id, nil
}

// FoundEmpty is the image's ID if it is there and has the right content: one layer without a file, and no command.
func FoundEmpty(ctx context.Context, e *engine.Engine) string {
	found, err := e.ImageInspect(ctx, EmptyTag)
	sum := sha256.Sum256(emptyTar)
	if err != nil || len(found.RootFS.Layers) != 1 || found.RootFS.Layers[0] != "sha256:"+hex.EncodeToString(sum[:]) {
		return ""
	}
	if c := found.Config; c != nil && (len(c.Env) > 0 || len(c.Volumes) > 0 || len(c.Labels) > 0 ||
		len(c.OnBuild) > 0 || c.Healthcheck != nil) {
		return ""
	}
	return found.ID
}
