package cli

import (
	"github.com/spf13/cobra"

	"github.com/starling-network/starling/node/job"
)

// JobFlags gives a command the flags that describe a job, under the names people know from docker and kubectl. The
// command sets Module and Args from its arguments and calls Flags.Job.
func JobFlags(c *cobra.Command) *job.Flags {
	f := &job.Flags{}
	s := c.Flags()
	s.StringVar(&f.Name, "name", "", "name of the job (default the module's)")
	s.StringArrayVarP(&f.Labels, "label", "l", nil, "label, NAME=VALUE; may be repeated")
	s.StringArrayVarP(&f.Env, "env", "e", nil, "environment variable, NAME=VALUE; may be repeated")
	s.StringVarP(&f.Count, "count", "n", "", "ranks, taken all or none (default 1)")
	s.StringVar(&f.Class, "class", "", "class of units (default cpu)")
	s.StringVar(&f.Units, "units", "", "units for each rank (default 1)")
	s.StringVar(&f.CPU, "cpu", "", "CPUs that each unit has at least, such as 0.5")
	s.StringVar(&f.Memory, "memory", "", "memory that each unit has at least, such as 256Mi")
	s.StringVar(&f.Disk, "disk", "", "disk that each unit has at least, such as 1Gi")
	s.StringSliceVar(&f.Regions, "region", nil, "regions to run in (default anywhere)")
	s.StringSliceVar(&f.Exclude, "exclude", nil, "keys of providers that are not wanted")
	s.StringVar(&f.Spread, "spread", "", "peer: every rank on another peer (default); pack: together")
	s.StringSliceVar(&f.Ask, "ask", nil, "ways to ask for quotes (default direct,gossip; gossip is always among them)")
	s.StringArrayVarP(&f.Inputs, "input", "i", nil, "file or directory, SRC:DST, {rank} in SRC for one of each rank; may be repeated")
	s.StringArrayVar(&f.Outputs, "out", nil, "directory of the program to keep; may be repeated")
	s.StringVar(&f.Retries, "retries", "", "how often a rank may be taken to another peer (default 3)")
	s.StringVar(&f.Queue, "queue-timeout", "", "time until all ranks have a lease (default 2m)")
	s.StringVar(&f.Run, "timeout", "", "time from then on (default 1h)")
	s.StringVar(&f.MaxPrice, "max-price", "", "the most you would pay for a unit in an hour, in tokens; needed")
	s.StringVar(&f.Budget, "budget", "", "the most the whole job may cost, in tokens (default what it would at that price)")
	s.StringVar(&f.Settle, "settle", "", "how providers are paid (default direct)")
	return f
}
