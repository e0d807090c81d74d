package jobcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
)

// flagOfProgram adds a hint to the error of an unknown flag behind the program's name.
func flagOfProgram(c *cobra.Command, err error) error {
	before := c.Flags().Args()
	if len(before) == 0 {
		return err
	}
	return cli.WithHint(&cli.Error{Code: cli.ExitUsage, Err: err},
		"flags and arguments of the program come after --: starling run %s -- …; %s --help lists those of run",
		before[0], c.CommandPath())
}

// pinned reports the digest of a job's image if its name had none, and returns the name with it.
func pinned(a *cli.App, image, now string) string {
	if name, digest, found := strings.Cut(now, "@"); found && name == image {
		a.Say("image %s is %s now", name, digest)
	}
	return now
}
