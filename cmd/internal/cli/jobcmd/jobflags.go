package jobcmd

import (
	"github.com/spf13/cobra"

	"github.com/starling-network/starling/node/job/jobfile"
)

// JobFlags gives a command the flags that describe a job, under the names people know from docker and kubectl. The
// command sets Module and Args from its arguments and calls Flags.Job.
func JobFlags(c *cobra.Command) *jobfile.Flags {
	f := &jobfile.Flags{}
	s := c.Flags()
	s.StringVar(&f.Name, "name", "", "name of the job (default the module's)")
	s.StringArrayVarP(&f.Labels, "label", "l", nil, "label, NAME=VALUE; may be repeated")
	s.StringArrayVarP(&f.Env, "env", "e", nil, "environment variable, NAME=VALUE; may be repeated")
	s.StringVarP(&f.Count, "count", "n", "", "ranks, taken all or none (default 1)")
	s.StringVar(&f.Class, "class", "", "class of units (default cpu)")
	s.StringVar(&f.Units, "units", "", "units for each rank (default 1)")
	s.StringVar(&f.GPUs, "gpus", "", `GPUs for each rank: 2, h100:8, "2,vram>=24", "h100,cap>=9.0"`)
	s.StringVar(&f.CPU, "cpu", "", "CPUs that each unit has at least, such as 0.5")
	s.StringVar(&f.Memory, "memory", "", "memory that each unit has at least, such as 256Mi")
	s.StringVar(&f.Disk, "disk", "", "disk that each unit has at least, such as 1Gi")
	s.BoolVar(&f.Unproven, "unproven", false,
		"take units too that no audit has shown to be what they say (on a network without audits all are such)")
	s.StringSliceVar(&f.Regions, "region", nil, "regions to run in (default anywhere)")
	s.StringSliceVar(&f.Exclude, "exclude", nil,
		"keys of providers that are not wanted, or their first eight characters")
	s.StringVar(&f.Spread, "spread", "", "peer: every rank on another peer (default); pack: together")
	s.StringArrayVarP(&f.Inputs, "input", "i", nil,
		"file, directory, https://…[#sha256=HEX], hf://… or cid:CID, SRC:DST, {rank} in SRC for one of each rank; may "+
			"be repeated")
	s.StringArrayVar(&f.Outputs, "out", nil, "directory of the program to keep; may be repeated")
	s.StringVar(&f.Scratch, "scratch", "", "room at /scratch that nobody keeps, such as 50Gi, beside --disk")
	s.StringVar(&f.Retries, "retries", "",
		"how often a rank may be taken to another peer, and how often --restart starts it again (default 3)")
	s.StringVar(&f.Restart, "restart", "",
		"start the program again on the same lease: never (default), on-failure or always")
	s.StringVar(&f.Backoff, "restart-backoff", "", "wait before that, doubled each time (default 1s)")
	s.StringVar(&f.Queue, "queue-timeout", "", "time until all ranks have a lease (default 2m)")
	s.StringVar(&f.Run, "timeout", "", "time to run after that; the program then has --stop-timeout to end "+
		"(default 1h)")
	s.StringVar(&f.Pull, "pull-timeout", "",
		"time a provider may take to fetch program and inputs (default as --timeout)")
	s.StringVar(&f.Start, "start-timeout", "",
		"time until the program runs, and is healthy where it has a check (default as --timeout)")
	s.StringVar(&f.Stop, "stop-timeout", "", "time a stopped program has to end by itself (default 2s)")
	s.StringVar(&f.Keep, "keep", "", "how long providers should keep results while you are away, such as 24h")
	s.StringVar(&f.Guards, "guardians", "",
		"peers that keep the job going when you and the peer you gave it to are gone: 0, 3 or 5 (default with -d 3 if "+
			"there are so many, else 0); not on a free network")
	s.StringVar(&f.Standbys, "standbys", "",
		"further providers that guardians may take for ranks that are lost (default 2)")
	s.StringArrayVar(&f.Webhooks, "webhook", nil, "address to tell of the job's changes of state; may be repeated")
	containerFlags(c, f)
	s.StringVar(&f.MaxPrice, "max-price", "", "the most you would pay for a unit in an hour, in tokens; needed")
	s.StringVar(&f.Budget, "budget", "",
		"the most the whole job may cost, in tokens (default what it would at that price)")
	s.StringVar(&f.Probes, "probes", "",
		"whether to measure, for a thousandth of the time at most, that the units are there for the job alone: "+
			"off, warn, or move a rank whose units are shared to another provider (default warn)")
	s.StringVar(&f.Verify, "verify", "",
		"replicate: the program runs deterministically, and some results are computed again by others, drawn by "+
			"lot by the chain's blocks; needs a module, --out and a network that has a chain (default none)")
	return f
}

// containerFlags are those that only a container has, and secrets.
func containerFlags(c *cobra.Command, f *jobfile.Flags) {
	s := c.Flags()
	s.StringVar(&f.Entrypoint, "entrypoint", "", "program of the image to run instead of its own")
	s.StringVarP(&f.WorkDir, "workdir", "w", "", "directory of the image to start in")
	s.StringVar(&f.Network, "network", "", "none (default) or internet")
	s.StringArrayVar(&f.Secrets, "secret", nil,
		"file under /run/secrets, NAME=env:VARIABLE or NAME=file:PATH, sealed to the provider; may be repeated")
	s.StringArrayVar(&f.SecretEnv, "secret-env", nil, "the same as a variable of the program; may be repeated")
	s.StringVar(&f.RegistryAuth, "registry-auth", "",
		"docker for your own docker login, or USER=env:VARIABLE or USER=file:PATH; sealed to the provider")
	s.StringVar(&f.HealthCmd, "health-cmd", "",
		"command that exits with 0 while the program is healthy, for /bin/sh of the image")
	s.StringVar(&f.HealthTCP, "health-tcp", "", "port that accepts while it is")
	s.StringVar(&f.HealthHTTP, "health-http", "", "PORT/PATH that answers with 200 to 399 while it is")
	s.StringVar(&f.HealthEvery, "health-interval", "", "time between two checks (default 30s)")
	s.StringVar(&f.HealthWait, "health-timeout", "", "time one check may take (default 30s)")
	s.StringVar(&f.HealthTries, "health-retries", "", "failures in a row until it is unhealthy (default 3)")
	s.StringVar(&f.HealthStart, "health-start-period", "", "time after the start in which failures do not count")
	s.BoolVar(&f.Privileged, "privileged", false, "not possible")
	s.StringArrayVar(&f.CapAdd, "cap-add", nil, "not possible")
	s.StringArrayVar(&f.Devices, "device", nil, "not possible")
	s.StringArrayVarP(&f.Volumes, "volume", "v", nil, "not possible")
	s.StringArrayVar(&f.Security, "security-opt", nil, "not possible")
	s.StringVar(&f.PID, "pid", "", "not possible")
	s.StringVar(&f.IPC, "ipc", "", "not possible")
	for _, name := range []string{"privileged", "cap-add", "device", "volume", "security-opt", "pid", "ipc"} {
		s.Lookup(name).Hidden = true // understood to be refused with a reason
	}
}
