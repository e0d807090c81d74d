package images

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
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/fetch"
	"github.com/starling-network/starling/node/runtime/docker/shelf"
)

// opening returns an image by its canonical name, with verified manifest and configuration.
type opening func(ctx context.Context, name string) (*fetch.Image, error)

// Pull downloads the image from its registry (package fetch) and gives it to the engine, which downloads nothing
// itself. Bytes are compressed ones. Of an image that was pulled with credentials it reads the manifest each time: who
// knows an image's digest may not run it for that.
func (m *Images) Pull(
	ctx context.Context, ref string, auth *runtime.RegistryAuth, progress func(done, total int64),
) error {
	return m.bring(ctx, ref, progress, auth == nil, func(ctx context.Context, name string) (*fetch.Image, error) {
		return m.fetch.Open(ctx, name, auth, m.engine.Platform, m.max)
	})
}

// PullVia is Pull without credentials, with the layers through via.
func (m *Images) PullVia(
	ctx context.Context, ref string, via runtime.Via, progress func(done, total int64),
) error {
	return m.bring(ctx, ref, progress, true, func(ctx context.Context, name string) (*fetch.Image, error) {
		i, err := m.fetch.Open(ctx, name, nil, m.engine.Platform, m.max)
		if err == nil {
			i.Via(via)
		}
		return i, err
	})
}

// Load gives a pushed image to the engine as Pull does, with the bytes of its parts.
func (m *Images) Load(
	ctx context.Context, ref string, parts runtime.Parts, progress func(done, total int64),
) error {
	return m.bring(ctx, ref, progress, false, func(ctx context.Context, name string) (*fetch.Image, error) {
		return fetch.OpenParts(ctx, name, parts, m.max)
	})
}

// bring gives an image to the engine unless the engine has it. One caller at a time does so. With anyone set, no
// credentials are used.
func (m *Images) bring(
	ctx context.Context, ref string, progress func(done, total int64), anyone bool, open opening,
) error {
	name, err := Canonical(ref)
	if err != nil {
		return err
	}
	if img, err := m.Config(ctx, ref); err == nil && !img.guard {
		m.Use(ctx, img)
		return nil
	}
	done, err := m.shelf.Pulling(ctx, shelf.Tag(name))
	if err != nil {
		return err
	}
	defer done()
	tag := shelf.Tag(name)
	if anyone {
		tag = shelf.OpenTag(name)
	}
	switch img, found := m.Config(ctx, ref); {
	case found == nil && img.guard:
		err = m.again(ctx, name, img, open)
	case found == nil: // another caller has brought it
	default:
		err = m.take(ctx, name, tag, progress, open)
	}
	var f *runtime.Failure
	switch {
	case errors.As(err, &f):
		return &runtime.Failure{Class: f.Class, Of: ref, Advice: f.Advice, Cause: f.Cause}
	case err != nil:
		return fmt.Errorf("pulling %s: %w", ref, err)
	}
	return nil
}

// again uses an image that was pulled with credentials, if the registry gives it to this caller too.
func (m *Images) again(ctx context.Context, name string, img Config, open opening) error {
	is, err := open(ctx, name)
	if err != nil {
		return err
	}
	is.Close()
	m.Use(ctx, img)
	return nil
}

func (m *Images) take(
	ctx context.Context, name, tag string, progress func(done, total int64), open opening,
) error {
	img, err := open(ctx, name)
	if err != nil {
		return err
	}
	defer img.Close()
	if err := m.promises(img); err != nil {
		return err
	}
	// Packed layers lie on the engine's disk until they are unpacked, and are hardly smaller then.
	room, err := m.shelf.Plan(ctx, 2*img.Bytes)
	if err != nil {
		return err
	}
	defer room.End(context.WithoutCancel(ctx))
	if err := m.load(ctx, func(ctx context.Context, w io.Writer) error {
		become := func(unpacked int64) error { return room.Become(ctx, unpacked) }
		return img.Write(ctx, w, tag, m.max, progress, become)
	}); err != nil {
		return err
	}
	return m.loaded(ctx, img, tag)
}

// promises checks that a container can be made of the image's configuration, before its layers are read.
func (m *Images) promises(img *fetch.Image) error {
	var says image.InspectResponse // a configuration has the same names but for their case
	if err := json.Unmarshal(img.JSON, &says); err != nil {
		return &runtime.Failure{Class: runtime.ErrBadImage, Advice: "image configuration: malformed", Cause: err}
	}
	if _, err := checkImage(says, m.engine.Platform, m.max); err != nil {
		return &runtime.Failure{Class: runtime.ErrBadImage, Advice: err.Error()}
	}
	return nil
}

// load gives the engine an archive. When write fails, the engine keeps nothing of it.
func (m *Images) load(ctx context.Context, write func(ctx context.Context, w io.Writer) error) error {
	out, in := io.Pipe()
	writing, giveUp := context.WithCancel(ctx)
	defer giveUp()
	written := make(chan error, 1)
	go func() {
		err := write(writing, in)
		written <- err // before the engine gets the error
		_ = in.CloseWithError(err)
	}()
	res, err := m.engine.ImageLoad(ctx, archive{out}, client.ImageLoadWithQuiet(true))
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
	return m.loadError(ctx, err)
}

// archive is the read side of an archive's pipe. A client closes it when the engine accepts no more data; the client's
// error then has the reason.
type archive struct{ *io.PipeReader }

func (a archive) Close() error { return a.CloseWithError(errClosed) }

var errClosed = errors.New("the engine takes no more of the archive")

// loadError classifies the engine's error about an archive.
func (m *Images) loadError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case engine.Disconnected(err):
		return m.engine.Explain(err)
	case strings.Contains(err.Error(), "no space left"):
		return &runtime.Failure{Class: runtime.ErrNoRoom, Advice: "use another provider, or try later",
			Cause: err}
	}
	return &runtime.Failure{Class: runtime.ErrBadImage, Advice: "the engine cannot unpack the image", Cause: err}
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

// loaded holds the image that the engine now has to the digest. Engines call an image by the digest of its
// configuration, which has those of all its layers, or of its manifest.
func (m *Images) loaded(ctx context.Context, img *fetch.Image, tag string) error {
	found, err := m.engine.ImageInspect(ctx, tag)
	if err != nil {
		return m.engine.Explain(err)
	}
	if found.ID == img.Config.String() || found.ID == img.Manifest.String() {
		if _, err = checkImage(found, m.engine.Platform, m.max); err == nil {
			m.Use(ctx, Config{ID: found.ID, shelf: tag}) // old engines do not note the time when they load
			return nil
		}
		err = &runtime.Failure{Class: runtime.ErrBadImage, Advice: err.Error()}
	} else {
		err = fmt.Errorf("%w: got %s", errNotLoaded, found.ID)
	}
	_ = m.shelf.Remove(context.WithoutCancel(ctx), tag)
	return err
}

var errNotLoaded = errors.New("image ID in the engine: mismatch")
