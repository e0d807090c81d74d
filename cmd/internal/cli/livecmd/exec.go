// Package livecmd has the commands on a running job: exec, cp, port-forward, pause, resume, extend, probe.
package livecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/live"
)

// NewExec makes the command `starling exec`.
func NewExec(a *cli.App) *cobra.Command {
	var rank int
	var stdin, tty bool
	var env []string
	var dir string
	c := &cobra.Command{
		Use:   "exec ID [flags] -- COMMAND [ARG...]",
		Short: "Run a command beside a job's program, in its sandbox",
		Long: `Runs one more command beside the program of a rank: in its container, under its limits, with its files.
The exit code is that of the command. -i forwards standard input, -t gives the command a terminal; -it opens a shell,
as in docker.

The command ends with this one, and at the latest with the rank's program. The wasm runtime does not support it.`,
		Example: `  starling exec jk3v5q2a -- nvidia-smi
  starling exec -it jk3v5q2a -- bash
  starling exec --rank 2 jk3v5q2a -- sh -c 'tail -n 3 /out/loss.csv'`,
		GroupID: cli.GroupJobs,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.WithHint(cli.Usagef("exec needs an id"), "%s", c.UseLine())
			}
			if len(args) == 1 {
				return cli.WithHint(cli.Usagef("exec needs a command"),
					"it comes after --, as in `starling exec %s -- ls /out`", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			p, err := ProgramOf(args[1:], env, dir, tty)
			if err != nil {
				return err
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			return Exec(a, c.Context(), client, args[0], rank, p, stdin)
		},
	}
	c.Flags().IntVar(&rank, "rank", 0, "run beside the program of this rank")
	c.Flags().BoolVarP(&stdin, "interactive", "i", false, "forward standard input")
	c.Flags().BoolVarP(&tty, "tty", "t", false, "give the command a terminal")
	c.Flags().StringArrayVarP(&env, "env", "e", nil, "NAME=VALUE, on top of the program's environment")
	c.Flags().StringVarP(&dir, "workdir", "w", "", "working directory (default that of the program)")
	return c
}

// ProgramOf is a command as the flags of exec describe it.
func ProgramOf(args, env []string, dir string, tty bool) (live.Program, error) {
	p := live.Program{Args: args, WorkDir: dir, TTY: tty}
	vars, err := variables("-e", env)
	p.Env = vars
	return p, err
}

// variables parses NAME=VALUE entries; it returns nil for none.
func variables(flag string, texts []string) (map[string]string, error) {
	var vars map[string]string
	for _, text := range texts {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return nil, cli.Usagef("%s %s: want NAME=VALUE", flag, text)
		}
		if vars == nil {
			vars = map[string]string{}
		}
		vars[k] = v
	}
	return vars, nil
}

// Exec runs the command and returns an error with its exit code.
func Exec(a *cli.App, ctx context.Context, client *api.Client, id string, rank int, p live.Program, stdin bool) error {
	var keys io.Reader
	if stdin || p.TTY {
		keys = a.In
	}
	return execute(a, ctx, client, target{job: record.Job{ID: id}, rank: rank}, p, keys)
}

// execute runs the command with keys as its standard input. keys is optional; if nil, the input is empty.
func execute(a *cli.App, ctx context.Context, client *api.Client, at target, p live.Program, keys io.Reader) error {
	in, isTerminal := terminal(a.In)
	if p.TTY && !isTerminal {
		return cli.Usagef("-t: standard input is not a terminal")
	}
	if p.TTY {
		if cols, rows, err := term.GetSize(in); err == nil {
			p.Cols, p.Rows = clampSize(cols), clampSize(rows)
		}
	}
	if name := a.Getenv("TERM"); p.TTY && name != "" && p.Env["TERM"] == "" {
		p.Env = maps.Clone(p.Env)
		if p.Env == nil {
			p.Env = map[string]string{}
		}
		p.Env["TERM"] = name
	}
	conn, err := client.Attach(ctx, at.job.ID, at.rank, p)
	if err != nil {
		return err
	}
	defer conn.Close()
	w := live.NewWriter(conn)
	if p.TTY {
		old, err := term.MakeRaw(in)
		if err != nil {
			return fmt.Errorf("setting up the terminal: %w", err)
		}
		defer term.Restore(in, old)
		resize := func() {
			if cols, rows, err := term.GetSize(in); err == nil {
				_ = w.Resize(clampSize(rows), clampSize(cols)) // the reader reports errors of the connection
			}
		}
		defer watchSize(resize)()
		if cols, rows, err := term.GetSize(in); err == nil && (clampSize(cols) != p.Cols || clampSize(rows) != p.Rows) {
			resize() // the size may have changed before the watch began
		}
	}
	if keys != nil {
		// The read may wait for input without end: the process ends without it.
		go func() {
			if _, err := io.Copy(w.Stream(live.Stdin), keys); err == nil {
				_ = w.Write(live.EOF, nil)
			}
		}()
	} else if err := w.Write(live.EOF, nil); err != nil {
		return err
	}
	code, err := live.Demultiplex(conn, a.Out, a.Err)
	switch {
	case ctx.Err() != nil:
		return &cli.Error{Code: cli.ExitInterrupted,
			Err: errors.New("interrupted; the command was ended, the job runs on")}
	case errors.Is(err, live.ErrCut):
		return cli.WithHint(err, "starling status %s", at.job.ID)
	case err != nil:
		return err
	case code != 0:
		return &cli.ExitError{Code: code}
	}
	return nil
}

func clampSize(n int) uint16 { return uint16(min(max(n, 1), 1<<16-1)) }

// terminal reports whether r is a terminal, and returns its file descriptor.
func terminal(r io.Reader) (int, bool) {
	f, ok := r.(*os.File)
	if !ok {
		return 0, false
	}
	fd := int(f.Fd())
	return fd, term.IsTerminal(fd)
}
