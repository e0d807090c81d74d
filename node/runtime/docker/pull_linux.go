package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/fetch"
)

// Pull reads the image from its registry (package fetch) and gives it to the engine, which never reads from anywhere by itself. Bytes are
// packed ones.
func (r *Runtime) Pull(ctx context.Context, ref string, auth *runtime.RegistryAuth, progress func(done, total int64)) error {
	name, err := canonical(ref)
	if err != nil {
		return err
	}
	if img, err := r.imageConfig(ctx, ref); err == nil {
		r.images.use(ctx, img)
		return nil
	}
	done, err := r.images.pulling(ctx, shelfTag(name))
	if err != nil {
		return err
	}
	defer done()
	if r.HasImage(ctx, ref) { // somebody else has pulled it
		return nil
	}
	err = r.pull(ctx, name, auth, progress)
	var f *runtime.Failure
	switch {
	case errors.As(err, &f):
		return &runtime.Failure{Class: f.Class, Of: ref, Advice: f.Advice, Cause: f.Cause}
	case err != nil:
		return fmt.Errorf("pulling %s: %w", ref, err)
	}
	return nil
}

func (r *Runtime) pull(ctx context.Context, name string, auth *runtime.RegistryAuth, progress func(done, total int64)) error {
	img, err := r.fetch.Open(ctx, name, auth, r.engine.platform, r.maxImage())
	if err != nil {
		return err
	}
	defer img.Close()
	if err := r.promises(img); err != nil {
		return err
	}
	// Packed layers lie on the engine's disk until they are unpacked, and are hardly smaller then.
	room, err := r.images.plan(ctx, 2*img.Bytes)
	if err != nil {
		return err
	}
	defer room.end(context.WithoutCancel(ctx))
	tag := shelfTag(name)
	if err := r.load(ctx, func(ctx context.Context, w io.Writer) error {
		return img.Write(ctx, w, tag, r.maxImage(), progress, func(unpacked int64) error { return room.become(ctx, unpacked) })
	}); err != nil {
		return err
	}
	return r.loaded(ctx, img, tag)
}

// promises checks that a container can be made of the image's configuration, before its layers are read.
func (r *Runtime) promises(img *fetch.Image) error {
	var says image.InspectResponse // a configuration has the same names but for their case
	if err := json.Unmarshal(img.JSON, &says); err != nil {
		return &runtime.Failure{Class: runtime.ErrBadImage, Advice: "its configuration is malformed", Cause: err}
	}
	if _, err := checkImage(says, r.engine.platform, r.maxImage()); err != nil {
		return &runtime.Failure{Class: runtime.ErrBadImage, Advice: err.Error()}
	}
	return nil
}

// load gives the engine an archive. When write fails, the engine keeps nothing of it.
func (r *Runtime) load(ctx context.Context, write func(ctx context.Context, w io.Writer) error) error {
	out, in := io.Pipe()
	writing, giveUp := context.WithCancel(ctx)
	defer giveUp()
	written := make(chan error, 1)
	go func() {
		err := write(writing, in)
		written <- err // before the engine can hear of it
		_ = in.CloseWithError(err)
	}()
	res, err := r.engine.ImageLoad(ctx, archive{out}, client.ImageLoadWithQuiet(true))
	if err == nil {
		err = readLoad(res.Body)
		_ = res.Body.Close()
	}
	select {
	case failed := <-written:
		if failed != nil && !errors.Is(failed, errClosed) {
			return failed
		}
	default: // the engine takes no more
		giveUp()
		_ = out.Close()
		<-written
	}
	return r.loadError(ctx, err)
}

// archive is the read side of an archive's pipe. A client closes it when the engine takes no more; the client's own error then says why.
type archive struct{ *io.PipeReader }

func (a archive) Close() error { return a.CloseWithError(errClosed) }

var errClosed = errors.New("the engine takes no more of the archive")

// loadError classifies the engine's error about an archive.
func (r *Runtime) loadError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case disconnected(err):
		return r.engine.explain(err)
	case strings.Contains(err.Error(), "no space left"):
		return &runtime.Failure{Class: runtime.ErrNoRoom, Advice: "another provider may have it, or this one later", Cause: err}
	}
	return &runtime.Failure{Class: runtime.ErrBadImage, Advice: "the container engine cannot unpack it", Cause: err}
}

// readLoad follows the engine's messages to their end.
func readLoad(stream io.Reader) error {
	for dec := json.NewDecoder(io.LimitReader(stream, maxSaid)); ; {
		var m struct {
			Error string `json:"error"`
		}
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m.Error != "" {
			return fmt.Errorf("%.1000s", m.Error)
		}
	}
}

// maxSaid bounds the engine's answer about an archive, bytes.
const maxSaid = 16 << 20

// loaded holds the image that the engine now has to the digest. Engines call an image by the digest of its configuration, which has those of
// all its layers, or of its manifest.
func (r *Runtime) loaded(ctx context.Context, img *fetch.Image, tag string) error {
	found, err := r.engine.ImageInspect(ctx, tag)
	if err != nil {
		return r.engine.explain(err)
	}
	if found.ID == img.Config.String() || found.ID == img.Manifest.String() {
		if _, err = checkImage(found, r.engine.platform, r.maxImage()); err == nil {
			r.images.use(ctx, imageConfig{id: found.ID, shelf: tag}) // old engines do not note the time when they load
			return nil
		}
		err = &runtime.Failure{Class: runtime.ErrBadImage, Advice: err.Error()}
	} else {
		err = fmt.Errorf("%w: it has %s", errNotLoaded, found.ID)
	}
	_ = r.images.remove(context.WithoutCancel(ctx), tag)
	return err
}

var errNotLoaded = errors.New("the engine has another image than it was given")
