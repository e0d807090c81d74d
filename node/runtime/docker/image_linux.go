package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
)

const (
	// maxVolumes, and MaxArgBytes for text, bound what an image says about itself.
	maxVolumes = 32
	// maxLayers bounds the layers whose progress is kept.
	maxLayers = 1024
	// diskPoll is how often the engine's disk is looked at during a pull.
	diskPoll = 250 * time.Millisecond
)

// imageConfig is what a container takes from its image.
type imageConfig struct {
	env, entrypoint, cmd []string
	workDir              string
	volumes              []string
}

// canonical is the name under which the engine knows an image by its digest, without a tag.
func canonical(ref string) (string, error) {
	if err := runtime.CheckImage(ref); err != nil {
		return "", fmt.Errorf("%w: %w", runtime.ErrBadImage, err)
	}
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "", fmt.Errorf("%w: %w", runtime.ErrBadImage, err)
	}
	digested, ok := named.(reference.Digested)
	if !ok {
		return "", fmt.Errorf("%w: %s has no digest", runtime.ErrBadImage, ref)
	}
	named, err = reference.WithDigest(reference.TrimNamed(named), digested.Digest())
	if err != nil {
		return "", fmt.Errorf("%w: %w", runtime.ErrBadImage, err)
	}
	return named.String(), nil
}

// HasImage says whether the image is on this machine and can run.
func (r *Runtime) HasImage(ctx context.Context, ref string) bool {
	_, err := r.imageConfig(ctx, ref)
	return err == nil
}

// imageConfig looks an image up and holds it to what a container can be made of.
func (r *Runtime) imageConfig(ctx context.Context, ref string) (imageConfig, error) {
	name, err := canonical(ref)
	if err != nil {
		return imageConfig{}, err
	}
	found, err := r.engine.ImageInspect(ctx, name)
	if absent(err) {
		return imageConfig{}, fmt.Errorf("%w: %s is not on this machine: pull it first", runtime.ErrBadImage, ref)
	}
	if err != nil {
		return imageConfig{}, r.engine.explain(err)
	}
	c, err := checkImage(found, r.engine.platform, int64(r.cfg.MaxImageMiB)<<20)
	if err != nil {
		return imageConfig{}, fmt.Errorf("%w: %s: %w", runtime.ErrBadImage, ref, err)
	}
	return c, nil
}

func checkImage(found image.InspectResponse, platform string, limit int64) (imageConfig, error) {
	if p := found.Os + "/" + found.Architecture; p != platform {
		return imageConfig{}, fmt.Errorf("it is made for %.40s, this machine is %s", p, platform)
	}
	if found.Size > limit {
		return imageConfig{}, fmt.Errorf("it has %d MiB, at most %d", found.Size>>20, limit>>20)
	}
	var c imageConfig
	if found.Config == nil {
		return c, nil
	}
	c = imageConfig{env: found.Config.Env, entrypoint: found.Config.Entrypoint, cmd: found.Config.Cmd, workDir: path.Clean("/" + found.Config.WorkingDir)}
	total := 0
	for _, s := range slices.Concat(c.env, c.entrypoint, c.cmd) {
		total += len(s) + 1
	}
	if total > runtime.MaxArgBytes {
		return c, fmt.Errorf("its environment and command have %d bytes, at most %d", total, runtime.MaxArgBytes)
	}
	for _, kv := range c.env {
		if kv == "" || kv[0] == '=' || strings.Contains(kv, "\x00") {
			return c, fmt.Errorf("its variable %.40q has no name", kv)
		}
	}
	if len(found.Config.Volumes) > maxVolumes {
		return c, fmt.Errorf("it declares %d volumes, at most %d", len(found.Config.Volumes), maxVolumes)
	}
	for v := range found.Config.Volumes {
		clean := path.Clean("/" + v)
		if owned(clean) {
			return c, fmt.Errorf("it declares a volume at %.80q, which belongs to the runtime or the system", v)
		}
		c.volumes = append(c.volumes, clean)
	}
	slices.Sort(c.volumes)
	return c, nil
}

// owned says whether nothing of a buyer may be mounted at this place of a container.
func owned(p string) bool {
	if p == "/" || p == "/run" {
		return true
	}
	for _, own := range []string{runtime.ControlDir, runtime.SecretsDir, "/proc", "/sys", "/dev"} {
		if p == own || strings.HasPrefix(p, own+"/") {
			return true
		}
	}
	return false
}

// Pull has the engine bring the image; it holds every layer and the manifest to their digests. Bytes are compressed ones.
func (r *Runtime) Pull(ctx context.Context, ref string, auth *runtime.RegistryAuth, progress func(done, total int64)) error {
	name, err := canonical(ref)
	if err != nil {
		return err
	}
	if r.HasImage(ctx, ref) {
		return nil
	}
	var opts image.PullOptions
	if auth != nil {
		if opts.RegistryAuth, err = registry.EncodeAuthConfig(registry.AuthConfig{Username: auth.Username, Password: auth.Password}); err != nil {
			return errors.New("encoding registry credentials failed")
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go r.watchPull(ctx, cancel)
	stream, err := r.engine.ImagePull(ctx, name, opts)
	if err == nil {
		err = readPull(stream, int64(r.cfg.MaxImageMiB)<<20, progress)
		_ = stream.Close()
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return fmt.Errorf("pulling %s: %w", ref, redacted(r.pullError(err), auth))
	}
	if _, err := r.imageConfig(ctx, ref); err != nil {
		_, _ = r.engine.ImageRemove(ctx, name, image.RemoveOptions{}) // what else uses it keeps it
		return fmt.Errorf("pulling: %w", err)
	}
	return nil
}

// watchPull ends a pull that unpacks to more than an image may have. Where the engine's disk cannot be seen, only what the
// registry says is bounded.
func (r *Runtime) watchPull(ctx context.Context, cancel context.CancelCauseFunc) {
	free := func() (int64, bool) {
		var s unix.Statfs_t
		if unix.Statfs(r.engine.root, &s) != nil {
			return 0, false
		}
		return int64(s.Bavail) * s.Bsize, true
	}
	before, ok := free()
	t := time.NewTicker(diskPoll)
	defer t.Stop()
	for ok {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		// Twice the image: its packed layers lie there too until they are unpacked.
		if now, seen := free(); seen && before-now > 2*int64(r.cfg.MaxImageMiB)<<20 {
			cancel(fmt.Errorf("%w: it unpacks to more than %d MiB", runtime.ErrBadImage, r.cfg.MaxImageMiB))
			return
		}
	}
}

// pullLine is one of the engine's messages.
type pullLine struct {
	Status   string `json:"status"`
	ID       string `json:"id"`
	Progress struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
	Error string `json:"error"`
}

// readPull follows the engine's messages to their end.
func readPull(stream io.Reader, limit int64, progress func(done, total int64)) error {
	type layer struct{ done, total int64 }
	layers := map[string]layer{}
	var sum layer
	for dec := json.NewDecoder(stream); ; {
		var m pullLine
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%w: %w", runtime.ErrEngine, err)
		}
		if m.Error != "" {
			return errors.New(m.Error)
		}
		if m.Status != "Downloading" && m.Status != "Download complete" || len(layers) >= maxLayers {
			continue
		}
		old := layers[m.ID]
		l := layer{max(m.Progress.Current, old.done), max(m.Progress.Total, old.total)}
		if m.Status == "Download complete" {
			l.done = l.total
		}
		layers[m.ID] = l
		sum.done, sum.total = sum.done+l.done-old.done, sum.total+l.total-old.total
		if sum.total > limit {
			return fmt.Errorf("%w: its layers have %d MiB, at most %d", runtime.ErrBadImage, sum.total>>20, limit>>20)
		}
		if progress != nil && sum != (layer{}) {
			progress(sum.done, sum.total)
		}
	}
}

// pullError sorts the engine's words for what went wrong; they are the same from 20.10 on.
func (r *Runtime) pullError(err error) error {
	if disconnected(err) {
		return r.engine.explain(err)
	}
	text := strings.ToLower(err.Error())
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	for _, known := range []error{runtime.ErrBadImage, runtime.ErrEngine, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return err
		}
	}
	switch {
	case errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err),
		has("unauthorized", "authentication required", "access denied", "access to the resource is denied", "no basic auth credentials", "denied:", "forbidden"):
		return fmt.Errorf("%w: %w", runtime.ErrCredentials, err)
	case has("manifest unknown", "manifest_unknown", "name unknown", "name_unknown", "not found", "does not exist", "no matching manifest", "verification failed", "digest", "unsupported",
		"invalid", "not match", "unexpected commit", "unexpected end of json", "mismatch", "unexpected media type", "cannot be used on this platform"):
		return fmt.Errorf("%w: %w", runtime.ErrBadImage, err)
	case has("no space left"):
		return err
	}
	return fmt.Errorf("%w: %w", runtime.ErrRegistry, err)
}

// redactedError repeats an error's text without credentials.
type redactedError struct {
	error
	text string
}

func (e redactedError) Error() string { return e.text }
func (e redactedError) Unwrap() error { return e.error }

// redacted takes the password out of what an error says, should an engine or registry ever repeat it.
func redacted(err error, auth *runtime.RegistryAuth) error {
	if auth == nil || auth.Password == "" || !strings.Contains(err.Error(), auth.Password) {
		return err
	}
	return redactedError{err, strings.ReplaceAll(err.Error(), auth.Password, "[password]")}
}
