package jobcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/job"
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

// unresolved adds a hint to the error of a peer that found no image under a job's name.
func unresolved(spec job.Job, err error) error {
	if spec.Image == "" || !strings.Contains(err.Error(), "spec.image: ") {
		return err
	}
	return cli.WithHint(err, "providers get images from registries: if %s is only on this computer, push it: "+
		"docker tag %[1]s REGISTRY/NAME:TAG && docker push REGISTRY/NAME:TAG", spec.Image)
}
