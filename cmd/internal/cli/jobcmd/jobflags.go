package jobcmd

import (
	"github.com/spf13/cobra"

	"github.com/starling-network/starling/node/job/jobfile"
)

// JobFlags gives a command the flags that describe a job, named as in docker and kubectl. The command sets Module and
// Args from its arguments and calls Flags.Job.
func JobFlags(c *cobra.Command) *jobfile.Flags {
	f := &jobfile.Flags{}
	s := c.Flags()
	s.StringVar(&f.Name, "name", "", "name of the job (default that of the module)")
	s.StringArrayVarP(&f.Labels, "label", "l", nil, "label, NAME=VALUE; may be repeated")
	s.StringArrayVarP(&f.Env, "env", "e", nil, "environment variable, NAME=VALUE; may be repeated")
	s.StringVarP(&f.Count, "count", "n", "", "number of ranks, leased all or none (default 1)")
	s.StringVar(&f.Class, "class", "", "class of units (default cpu)")
	s.StringVar(&f.Units, "units", "", "units for each rank (default 1)")
	s.StringVar(&f.GPUs, "gpus", "", `GPUs for each rank: 2, h100:8, "2,vram>=24", "h100,cap>=9.0"`)
	s.StringVar(&f.CPU, "cpu", "", "least CPUs of each unit, such as 0.5")
	s.StringVar(&f.Memory, "memory", "", "least memory of each unit, such as 256Mi")
	s.StringVar(&f.Disk, "disk", "", "least disk of each unit, such as 1Gi")
	s.BoolVar(&f.Unproven, "unproven", false,
		"accept units without an audit record")
	s.StringSliceVar(&f.Regions, "region", nil, "regions to run in (default anywhere)")
	s.StringSliceVar(&f.Exclude, "exclude", nil,
		"keys of excluded providers, or the first eight characters")
	s.StringVar(&f.Spread, "spread", "", "peer: every rank on another peer (default); pack: together")
	s.StringArrayVarP(&f.Inputs, "input", "i", nil,
		"input SRC:DST; SRC is a path, https://…, s3://…, hf://…, ipfs://… or cid:CID, with {rank} for one per "+
			"rank; may be repeated")
	s.StringArrayVar(&f.Outputs, "out", nil, "directory of the program to keep; may be repeated")
	s.StringArrayVarP(&f.Volumes, "volume", "v", nil,
		"volume NAME:/PATH, or NAME:/PATH:ro; may be repeated")
	s.StringVar(&f.Ckpt, "checkpoint", "",
		"directory to keep for a moved rank, PATH[:EVERY] (default 5m)")
	s.StringVar(&f.Copies, "copies", "",
		"encrypted copies of the outputs, COUNT:TIME[:PRICE]")
	s.StringVar(&f.Scratch, "scratch", "", "temporary space at /scratch, such as 50Gi, beside --disk")
	s.StringVar(&f.Retries, "retries", "",
		"most moves of a rank, and most restarts of it (default 3)")
	s.StringVar(&f.Restart, "restart", "",
		"restarts on the same lease: never (default), on-failure, always")
	s.StringVar(&f.Backoff, "restart-backoff", "", "wait before a restart, doubled each time (default 1s)")
	s.StringVar(&f.Queue, "queue-timeout", "", "time until all ranks have a lease (default 2m)")
	s.StringVar(&f.Run, "timeout", "", "run time after that, before --stop-timeout (default 1h)")
	s.StringVar(&f.Pull, "pull-timeout", "",
		"time to fetch program and inputs (default as --timeout)")
	s.StringVar(&f.Start, "start-timeout", "",
		"time until the program runs healthily (default as --timeout)")
	s.StringVar(&f.Stop, "stop-timeout", "", "time for a stopped program to end by itself (default 2s)")
	s.StringVar(&f.Idle, "idle", "", "time without use until the job is stopped (default never)")
	s.StringVar(&f.Keep, "keep", "", "time for providers to keep results, such as 24h")
	s.StringVar(&f.Guards, "guardians", "",
		"number of guardians: 0, 3 or 5 (default with -d 3, else 0)")
	s.StringVar(&f.Standbys, "standbys", "",
		"number of spare providers for lost ranks (default 2)")
	s.StringArrayVar(&f.Webhooks, "webhook", nil, "URL to notify of the job's state changes; may be repeated")
	containerFlags(c, f)
	s.StringVar(&f.MaxPrice, "max-price", "", "highest price of a unit-hour, in tokens; required if paid")
	s.StringVar(&f.Budget, "budget", "",
		"highest cost of the job (default its cost at --max-price)")
	s.StringVar(&f.Probes, "probes", "",
		"reaction to shared units: off, warn (default) or move")
	s.StringVar(&f.Verify, "verify", "",
		"check of results: none (default) or replicate")
	return f
}

// containerFlags adds the flags that only containers have, and secrets.
func containerFlags(c *cobra.Command, f *jobfile.Flags) {
	s := c.Flags()
	s.StringVar(&f.Entrypoint, "entrypoint", "", "program of the image to run instead of its entrypoint")
	s.StringVarP(&f.WorkDir, "workdir", "w", "", "working directory in the image")
	s.StringVar(&f.Shm, "shm-size", "", "size of /dev/shm, part of the memory (default half of it)")
	s.StringVar(&f.Network, "network", "", "network access: none (default) or internet")
	s.StringArrayVar(&f.Secrets, "secret", nil,
		"file under /run/secrets, NAME=env:VARIABLE or NAME=file:PATH, sealed to the provider; may be repeated")
	s.StringArrayVar(&f.SecretEnv, "secret-env", nil, "secret as an environment variable; may be repeated")
	s.StringVar(&f.RegistryAuth, "registry-auth", "",
		"docker to use your docker login, or USER=env:VARIABLE or USER=file:PATH; sealed to the provider")
	s.StringVar(&f.HealthCmd, "health-cmd", "",
		"health check: command for /bin/sh of the image, 0 if healthy")
	s.StringVar(&f.HealthTCP, "health-tcp", "", "health check: port that accepts connections")
	s.StringVar(&f.HealthHTTP, "health-http", "", "health check: PORT/PATH that answers with 200 to 399")
	s.StringVar(&f.HealthEvery, "health-interval", "", "time between two checks (default 30s)")
	s.StringVar(&f.HealthWait, "health-timeout", "", "time for one check (default 30s)")
	s.StringVar(&f.HealthTries, "health-retries", "", "failures in a row until it is unhealthy (default 3)")
	s.StringVar(&f.HealthStart, "health-start-period", "", "time after the start without counting failures")
	s.BoolVar(&f.Privileged, "privileged", false, "not possible")
	s.StringArrayVar(&f.CapAdd, "cap-add", nil, "not possible")
	s.StringArrayVar(&f.Devices, "device", nil, "not possible")
	s.StringArrayVar(&f.Security, "security-opt", nil, "not possible")
	s.StringVar(&f.PID, "pid", "", "not possible")
	s.StringVar(&f.IPC, "ipc", "", "not possible")
	s.StringArrayVarP(&f.Publish, "publish", "p", nil, "not possible")
	s.BoolVarP(&f.TTY, "tty", "t", false, "only in run -it")
	s.StringVarP(&f.User, "user", "u", "", "not possible")
	for _, name := range []string{
		"privileged", "cap-add", "device", "security-opt", "pid", "ipc", "publish", "tty", "user",
	} {
		s.Lookup(name).Hidden = true // parsed, then refused with a reason; tty as -it of run
	}
	s.Bool("rm", true, "has no effect: a container is removed at its end")
	s.Lookup("rm").Hidden = true
}
