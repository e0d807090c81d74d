package livecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/livecmd/sshserver"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/live"
)

const sshLong = `Starts the system's ssh on a rank of a running job, rank 0 if none is named. Everything after JOB
goes to ssh: its options, such as -L 8888:localhost:8888 or -N, and a command. The exit code is that of ssh, 255 if it
could not connect. The connection is the stream of starling exec and port-forward. It needs no key and no open port,
and works through NATs and with --peer.

A session runs a program beside the rank's own: the image's shell ($SHELL, bash or sh) with the environment and
directory of the rank's program and its user. The image needs a /bin/sh, and for rsync an rsync. scp, sftp and sshfs
work with every image. -L and -D reach the ports of the program's own localhost. -R, -A and -X are refused.

--config prints an entry for ~/.ssh/config, named starling-JOB, for programs that start ssh: VS Code Remote, rsync, scp,
git. --write keeps it in ~/.ssh/config.d/starling, which ~/.ssh/config then includes, and removes entries of jobs that
have ended.

Programs that have no session of their own (setsid, tmux) outlive the connection. All end with the job. The wasm runtime
has no shell.`

// NewSSH makes the command `starling ssh`.
func NewSSH(a *cli.App) *cobra.Command {
	var stdio, config, write bool
	c := &cobra.Command{
		Use:   "ssh [flags] JOB[/RANK] [SSH-OPTION...] [COMMAND...]",
		Short: "Open a shell, forward ports and copy files by ssh",
		Long:  sshLong,
		Example: `  starling ssh jk3v5q2a
  starling ssh jk3v5q2a/1 nvidia-smi
  starling ssh jk3v5q2a -N -L 6006:localhost:6006
  starling ssh --config --write jk3v5q2a
  rsync -a src/ starling-jk3v5q2a:/scratch/src/
  code --remote ssh-remote+starling-jk3v5q2a /scratch`,
		GroupID: cli.GroupJobs,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.WithHint(cli.Usagef("ssh needs an id"), "%s", c.UseLine())
			}
			if (stdio || config) && len(args) > 1 {
				return cli.Usagef("--stdio and --config take one JOB, not %q", args[1])
			}
			if write && !config || stdio && config {
				return cli.Usagef("--write needs --config; --stdio and --config exclude each other")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			t, err := findTarget(c.Context(), client, args[0])
			if err != nil {
				return err
			}
			switch {
			case stdio:
				return serveSSH(a, c.Context(), client, t)
			case config:
				return configSSH(a, c.Context(), client, t, write)
			}
			return startSSH(a, c.Context(), t, args[1:])
		},
	}
	c.Flags().SetInterspersed(false) // what follows JOB is for ssh
	c.Flags().BoolVar(&stdio, "stdio", false, "serve one connection on standard input and output, as ProxyCommand")
	c.Flags().BoolVar(&config, "config", false, "print the entry of ~/.ssh/config for the job")
	c.Flags().BoolVar(&write, "write", false, "with --config: keep it in ~/.ssh/config.d/starling")
	return c
}

// target is a rank of a running job.
type target struct {
	job  record.Job
	rank int
	only bool // the user named the rank
}

// hostPrefix begins the names of hosts in ssh's configuration.
const hostPrefix = "starling-"

// host is the name of a rank for ssh.
func (t target) host(rank int) string {
	if rank == 0 {
		return hostPrefix + t.job.ID
	}
	return fmt.Sprintf("%s%s-%d", hostPrefix, t.job.ID, rank)
}

// findTarget finds the rank that JOB or JOB/RANK names.
func findTarget(ctx context.Context, client *api.Client, arg string) (t target, err error) {
	id, rank, only := strings.Cut(arg, "/")
	if only {
		if t.rank, err = strconv.Atoi(rank); err != nil {
			return t, cli.Usagef("%q: %q is not a rank", arg, rank)
		}
	}
	t.only = only
	if t.job, err = api.GetJob.Call(ctx, client, api.ByID{ID: id}); err != nil {
		return t, err
	}
	if err := cli.CheckRank(t.job, t.rank); err != nil {
		return t, err
	}
	if end, over := t.job.Result(); over {
		return t, cli.WithHint(fmt.Errorf("job %s has ended: %s", t.job.ID, end), "starling job rerun %s", t.job.ID)
	}
	return t, nil
}

// reached is the access to one rank by the peer's API.
type reached struct {
	client *api.Client
	target
}

func (r reached) Attach(ctx context.Context, p live.Program) (live.Conn, error) {
	return r.client.Attach(ctx, r.job.ID, r.rank, p)
}

func (r reached) Forward(ctx context.Context, port uint16) (live.Conn, error) {
	return r.client.Forward(ctx, r.job.ID, r.rank, port)
}

// serveSSH serves one ssh connection on standard input and output.
func serveSSH(a *cli.App, ctx context.Context, client *api.Client, t target) error {
	home, err := a.Home()
	if err != nil {
		return err
	}
	key, err := hostKey(home)
	if err != nil {
		return err
	}
	out, ok := a.Out.(io.WriteCloser)
	if !ok {
		out = openOut{a.Out}
	}
	return sshserver.Serve(ctx, a.In, out, sshserver.Config{
		HostKey: key, Programs: reached{client, t}, Explain: func(err error) string {
			text := err.Error()
			if hint := cli.Explain(err).Hint; hint != "" {
				text += "; hint: " + hint
			}
			return text
		},
	})
}

// openOut is an output that is not closed.
type openOut struct{ io.Writer }

func (openOut) Close() error { return nil }

// startSSH runs the system's ssh, and returns an error with its exit code.
func startSSH(a *cli.App, ctx context.Context, t target, args []string) error {
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		return cli.WithHint(errors.New("no ssh is installed here"),
			"starling exec -it --rank %d %s -- sh", t.rank, t.job.ID)
	}
	options, err := sshOptions(a, t.job.ID, t.rank)
	if err != nil {
		return err
	}
	var line []string
	for _, o := range options {
		line = append(line, "-o", o.name+"="+o.value)
	}
	line = append(append(line, t.host(t.rank)), args...)
	cmd := exec.CommandContext(ctx, ssh, line...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.In, a.Out, a.Err
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it restores the terminal
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() > 0 {
		return &cli.ExitError{Code: ended.ExitCode()}
	}
	if ctx.Err() != nil {
		return &cli.Error{Code: cli.ExitInterrupted, Err: errors.New("interrupted; the job runs on")}
	}
	if err != nil {
		return fmt.Errorf("running ssh: %w", err)
	}
	return nil
}
