// Package imagecmd has the commands on container images. It stores images that no registry has, of the user's container
// engine or of an archive, on the peer, from where providers get them. It lists and removes the images of a provider.
//
//	docker save, archive ──▶ layers, compressed, while they are read ──▶ the peer's blobs, unless they are there
//	                    └──▶ configuration, and a manifest made here ──▶ the image's digest
package imagecmd

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/userdocker"
	"github.com/starling-network/starling/node/api"
)

// NewImage makes the command `starling image`.
func NewImage(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupJobs, &cobra.Command{
		Use:   "image",
		Short: "Store, list and remove container images",
		Long: `Stores container images that no registry has on the peer. Providers of a job get them from there, and
only they: the image needs no registry and is not published. Lists and removes these images and, on a peer that sells,
the images that were brought for jobs of others.`,
		Example: `  starling image push app:dev
  starling image ls`,
	}, newPush(a), newLs(a), newRm(a))
}

func newPush(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "push IMAGE|FILE",
		Short: "Store an image on the peer, for jobs",
		Long: `Stores IMAGE of this computer's docker, or the image of FILE, on the peer, and prints the name by which
jobs run it from there, pushed.invalid/NAME@sha256:DIGEST. FILE is an archive of docker save or an OCI layout, or - for
standard input. Layers are compressed here; those that the peer has are not uploaded again.

starling run does the same by itself for an image that no registry has. The image stays until the peer needs room:
the files of jobs that run are kept, others are removed, least recently used first. Push it again then.`,
		Example: `  starling image push app:dev
  starling run --max-price 0.05 $(starling image push app:dev)
  docker save app:dev | starling image push -`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			p, err := pushed(a, c.Context(), client, args[0])
			if err != nil {
				return err
			}
			if a.Output == cli.OutputTable {
				fmt.Fprintln(a.Out, p.Image)
				return nil
			}
			return a.Show(p, nil)
		},
	}
}

// pushed stores an image of the user's container engine, or of a file.
func pushed(a *cli.App, ctx context.Context, c *api.Client, name string) (Pushed, error) {
	if info, err := os.Stat(name); name == "-" || err == nil && info.Mode().IsRegular() {
		return pushFile(ctx, a, c, name)
	}
	found, ok := userdocker.Image(ctx, a.Getenv, name)
	if !ok {
		return Pushed{}, cli.WithHint(cli.Usagef("%s: docker on this computer has no such image, and there is no such "+
			"file", name), "docker image ls lists the images; a file is made by docker save")
	}
	return Push(ctx, a, c, name, found)
}
