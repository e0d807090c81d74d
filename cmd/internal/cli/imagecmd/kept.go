package imagecmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/p2p/stream"
)

func newLs(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List pushed images, and images for jobs of others",
		Long: `Lists the container images that were pushed for jobs of this peer, with their NAME and the size of their
files. KEPT is how long: "for a job" while a job of this peer needs the image, otherwise "until room is needed". The
peer then removes the least recently used files; an image without some of its files is "incomplete": push it again.

On a peer that sells, lists as well the images that were brought for jobs of others and stay on its container engine,
with their unpacked size and last use. Images share layers, so that they take less room together. IN USE means that a
container is made of the image. Offers name the last used of those that are PUBLIC, because their registry gave them
without credentials: buyers prefer providers that have their image.`,
		Example: `  starling image ls
  starling image ls -o json`,
	}, 0, cli.Get(api.ListImages), func(t *cli.Table, _ cli.Peer, all []api.ImageInfo) {
		t.Head("ID", "SIZE", "LAST USE", "IN USE", "PUBLIC", "KEPT", "NAME")
		for _, i := range all {
			t.Row(short(i), stream.Size(i.Size), cli.Ago(time.Now(), i.Used), yes(i.InUse), yes(i.Public), keeping(i),
				strings.Join(i.Names, ", "))
		}
	})
}

// keeping describes how long a peer keeps an image.
func keeping(i api.ImageInfo) string {
	switch {
	case i.Incomplete:
		return "incomplete"
	case i.InUse && len(i.Names) > 0:
		return "for a job"
	}
	return "until room is needed"
}

func newRm(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "rm ID...",
		Short: "Remove images that nothing uses",
		Long: `Removes images that were pushed for jobs of this peer, with the files that no other image or job needs.
An image that a job needs is refused.

Removes images that were brought for jobs of others from this peer's container engine. An image of a container is
refused, and so is one that was used in the last 15 minutes, since a program may be starting. The peer removes the least
recently used images by itself when the engine's disk is nearly full. ID is one of starling image ls, or its
beginning.`,
		Example: `  starling image rm 4f53cda18c2b`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("starling image rm needs an ID; starling image ls lists the images")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			all, err := api.ListImages.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			removed := []api.ImageInfo{}
			for _, arg := range args {
				i, err := named(all, arg)
				if err == nil {
					err = api.RemoveImage.Send(c.Context(), client, api.ByID{ID: i.ID})
				}
				if err != nil {
					return fmt.Errorf("image %s: %w", arg, err)
				}
				removed = append(removed, i)
			}
			return a.Show(removed, func(t *cli.Table) {
				for _, i := range removed {
					t.Row(short(i))
				}
			})
		},
	}
}

// shortID is the length of an ID in a table: twelve digits of the digest, as container engines show them.
const shortID = 12

func short(i api.ImageInfo) string { return i.ID[:min(len(i.ID), shortID)] }

// named finds the one image whose ID begins with a text.
func named(all []api.ImageInfo, text string) (found api.ImageInfo, err error) {
	n := 0
	for _, i := range all {
		if strings.HasPrefix(i.ID, strings.TrimPrefix(text, "sha256:")) {
			found, n = i, n+1
		}
	}
	if n != 1 {
		return found, cli.WithHint(cli.Usagef("%d images have this ID", n),
			"starling image ls -o json has the whole IDs")
	}
	return found, nil
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
