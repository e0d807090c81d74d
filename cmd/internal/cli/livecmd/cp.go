package livecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/live"
)

// NewCp makes the command `starling cp`.
func NewCp(a *cli.App) *cobra.Command {
	var rank int
	c := &cobra.Command{
		Use:   "cp ID:PATH LOCAL | cp LOCAL ID:PATH",
		Short: "Copy files out of a running job, or into it",
		Long: `Copies a file or directory between a running program and this machine, as docker cp does: into LOCAL if
LOCAL is a directory, else to that name. Only the job's inputs and outputs can be read, and only outputs can be
written, within the lease's disk. If LOCAL is -, a tar archive is written to standard output or read from standard
input.

After the job has ended, download its outputs with starling get.`,
		Example: `  starling cp jk3v5q2a:/out/model.ckpt .
  starling cp --rank 2 jk3v5q2a:/out logs
  starling cp stop-here jk3v5q2a:/out
  starling cp jk3v5q2a:/out - | tar tv`,
		GroupID: cli.GroupJobs,
		Args:    cli.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			from, fromPath, out := remotePath(args[0])
			to, toPath, in := remotePath(args[1])
			if out == in {
				return cli.WithHint(cli.Usagef("one argument must be ID:PATH, with an absolute PATH, and "+
					"the other a file here"), "%s", c.UseLine())
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			if out {
				return copyOut(a, c.Context(), client, from, rank, fromPath, args[1])
			}
			return copyIn(a, c.Context(), client, args[0], to, rank, toPath)
		},
	}
	c.Flags().IntVar(&rank, "rank", 0, "copy from or to this rank")
	return c
}

var remotePattern = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*):(/.*)$`)

// remotePath splits ID:/PATH.
func remotePath(arg string) (id, file string, ok bool) {
	m := remotePattern.FindStringSubmatch(arg)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

func copyOut(a *cli.App, ctx context.Context, client *api.Client, id string, rank int, file, local string) error {
	if local == "-" {
		return client.CopyOut(ctx, id, rank, file, a.Out)
	}
	dir, as, err := localTarget(file, local)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := client.CopyOut(ctx, id, rank, file, w)
		w.CloseWithError(err)
		sent <- err
	}()
	// The peer forwards at most the lease's disk, and Unpack writes at most its input.
	u, err := live.Unpack(r, root, ".", as, math.MaxInt64>>1, false)
	_ = r.CloseWithError(errStopCopy)
	if said := <-sent; said != nil && !errors.Is(said, errStopCopy) {
		err = said // the reason why the archive is incomplete
	}
	if err != nil {
		return err
	}
	if u.Links > 0 {
		a.Say("%d links and devices were left out; `starling cp %s:%s -` archives links too", u.Links, id, file)
	}
	a.Say("%d files with %d bytes copied to %s", u.Files, u.Bytes, filepath.Join(dir, as))
	return nil
}

var errStopCopy = errors.New("reading the archive was stopped")

// localTarget returns the target directory of a copy and the name of the first element there; "" keeps its own name.
func localTarget(file, local string) (dir, as string, err error) {
	info, err := os.Stat(local)
	switch {
	case err == nil && info.IsDir() && strings.HasSuffix(file, "/."):
		abs, err := filepath.Abs(local)
		return filepath.Dir(abs), filepath.Base(abs), err // its content, into this one
	case err == nil && info.IsDir():
		return local, "", nil
	case err == nil || errors.Is(err, os.ErrNotExist) && !strings.HasSuffix(local, "/"):
		dir = filepath.Dir(local)
		if info, err = os.Stat(dir); err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a directory", dir)
		}
		return dir, filepath.Base(local), err
	}
	return "", "", err
}

func copyIn(a *cli.App, ctx context.Context, client *api.Client, local, id string, rank int, file string) error {
	if local == "-" {
		return client.CopyIn(ctx, id, rank, file, true, a.In)
	}
	info, err := os.Stat(local)
	if err != nil {
		return &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	abs, err := filepath.Abs(local)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(abs))
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := live.Pack(w, root, filepath.Base(abs), filepath.Base(abs), math.MaxInt64>>1)
		w.CloseWithError(err)
		packed <- err
	}()
	err = client.CopyIn(ctx, id, rank, path.Clean(file), strings.HasSuffix(file, "/"), r)
	_ = r.CloseWithError(errStopCopy)
	if reading := <-packed; reading != nil && !errors.Is(reading, errStopCopy) {
		err = reading
	}
	if err != nil {
		return err
	}
	what := "file"
	if info.IsDir() {
		what = "directory"
	}
	a.Say("%s %s copied to %s", what, local, file)
	return nil
}
