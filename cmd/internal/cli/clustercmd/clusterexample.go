package clustercmd

import (
	"embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/cluster"
)

// examples has a file of kind Cluster for each engine, by its name.
//
//go:embed examples/*.yaml
var examples embed.FS

func newClusterExample(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "example ENGINE",
		Short: "Write an example file for " + strings.Join(cluster.Names(), ", "),
		Long: `Writes a file of kind Cluster for an engine, with all of its options and their defaults. Put your image
and your program in it, and start it with starling cluster up.`,
		Example: `  starling cluster example ray > sweep.yaml
  starling cluster up --dry-run sweep.yaml`,
		Args:      cli.ExactArgs(1),
		ValidArgs: cluster.Names(),
		RunE: func(_ *cobra.Command, args []string) error {
			e, err := cluster.LookUp(args[0])
			if err != nil {
				return cli.Usagef("%v", err)
			}
			file, err := examples.ReadFile("examples/" + e.Name + ".yaml")
			if err != nil {
				return fmt.Errorf("the example for %s: %w", e.Name, err)
			}
			_, err = a.Out.Write(file)
			return err
		},
	}
}
