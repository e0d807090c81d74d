package imagecmd

import (
	"context"
	"errors"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/userdocker"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/stream"
)

// LocalImage returns a job that its peer refused because no registry gave its image, with the image of that name in the
// user's container engine, which it stores on the peer. It returns the refusal if there is no such image, if the job
// has credentials for the image's registry, or if the job was refused for another reason.
func LocalImage(
	ctx context.Context, a *cli.App, c *api.Client, spec job.Job, refusal error,
) (job.Job, error) {
	if !unresolved(spec, refusal) || spec.Registry != nil || images.IsPushed(spec.Image) {
		return spec, NoImage(spec, refusal)
	}
	found, ok := userdocker.Image(ctx, a.Getenv, spec.Image)
	if !ok {
		return spec, NoImage(spec, refusal)
	}
	a.Say("no registry gives %s: docker's image of this name, %s, goes to the peer, and from there to the providers "+
		"of the job", spec.Image, stream.Size(found.Size))
	p, err := Push(ctx, a, c, spec.Image, found)
	spec.Image = p.Image
	return spec, err
}

// NoImage adds a hint to the error of a peer that found no image under a job's name.
func NoImage(spec job.Job, err error) error {
	if !unresolved(spec, err) {
		return err
	}
	refused := has(err, api.CodeImageAuth)
	return cli.WithHint(err, "%s", userdocker.Hint(spec.Image, refused))
}

// unresolved reports whether a peer refused a job because it found no image under the job's name.
func unresolved(spec job.Job, refusal error) bool {
	return spec.Image != "" && (has(refusal, api.CodeNoImage) || has(refusal, api.CodeImageAuth))
}

// has reports whether an error is an answer of the peer with a code.
func has(err error, code string) bool {
	answer, ok := errors.AsType[*api.Error](err)
	return ok && answer.Code == code
}

// Login returns the credentials of the user's docker for the registry of an image.
func Login(ctx context.Context, a *cli.App, image string) (user, password string, err error) {
	return userdocker.Login(ctx, a.Getenv, image)
}
