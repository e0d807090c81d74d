// Package jobcmd has the commands that submit jobs, list, explain, follow and stop them, and download their outputs.
package jobcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
)

// NewJob makes the command `starling job` with more commands below it.
func NewJob(a *cli.App, more ...*cobra.Command) *cobra.Command {
	below := append([]*cobra.Command{newJobValidate(a), newHistory(a), newRerun(a)}, more...)
	return cli.Noun(cli.GroupJobs, &cobra.Command{
		Use:   "job",
		Short: "Check job files, and control and repeat jobs",
		Long: `Checks job files and templates, lists past jobs, and controls running jobs: pauses and extends them,
and forwards their ports. A Ray cluster takes jobs from Ray's own client: ray job submit, through starling cluster
port-forward.`,
		Example: `  starling job validate job.yaml
  starling job history --since 7d
  starling job port-forward jk3v5q2a 8888`,
	}, below...)
}

func newJobValidate(a *cli.App) *cobra.Command {
	var noFiles bool
	c := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a job file without submitting it",
		Long: `Reads a job file as submit does and reports every problem with its field, line and column. Shows the
job with all defaults. FILE may be - for standard input.`,
		Example: `  starling job validate job.yaml
  starling job validate -o json job.yaml`,
		Args: cli.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			j, err := LoadJob(a, args[0])
			if err != nil {
				return err
			}
			if !noFiles {
				if err := checkFiles(j); err != nil {
					return err
				}
			}
			return a.Show(j, func(t *cli.Table) { jobTable(t, j) })
		},
	}
	c.Flags().BoolVar(&noFiles, "no-files", false, "do not check that the files it names exist")
	return c
}

// LoadJob reads a job file ("-" for standard input) for the network of this home directory. Relative paths in the file
// are relative to its directory.
func LoadJob(a *cli.App, path string) (job.Job, error) {
	token, err := Token(a)
	if err != nil {
		return job.Job{}, err
	}
	if path == "-" {
		data, err := io.ReadAll(io.LimitReader(a.In, jobfile.MaxFile+1))
		if err != nil {
			return job.Job{}, fmt.Errorf("reading standard input: %w", err)
		}
		j, err := jobfile.Parse(data, token)
		return j, cli.InFile("-", err)
	}
	data, err := cli.ReadFile(path, jobfile.MaxFile)
	if err != nil {
		return job.Job{}, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("reading the job file: %w", err)}
	}
	j, err := jobfile.Parse(data, token)
	if err != nil {
		return job.Job{}, cli.InFile(path, err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return job.Job{}, fmt.Errorf("finding the job file's directory: %w", err)
	}
	return j.In(dir), nil
}

// Token is the token of this home directory's network. Without a network it is a token of six decimals.
func Token(a *cli.App) (jobfile.Token, error) {
	if err := a.Introduced(); err != nil {
		return jobfile.Token{}, err
	}
	home, err := a.Home()
	if err != nil {
		return jobfile.Token{}, err
	}
	g, err := config.LoadGenesis(home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return jobfile.Token{Decimals: cli.DefaultDecimals}, nil
	case err != nil:
		return jobfile.Token{}, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	return jobfile.Token{Decimals: g.Decimals, Free: g.Free}, nil
}

// checkFiles reports every missing file of the job.
func checkFiles(j job.Job) error {
	var missing []string
	for _, source := range j.Sources() {
		if strings.HasPrefix(source, job.CIDScheme) || job.IsURL(source) {
			continue
		}
		if _, err := os.Stat(source); err != nil {
			missing = append(missing, fmt.Sprintf("%s: %v", source, errors.Unwrap(err)))
		}
		if len(missing) == 10 {
			missing = append(missing, "…")
			break
		}
	}
	switch len(missing) {
	case 0:
		return nil
	case 1:
		err := cli.Usagef("a file of the job cannot be read: %s", missing[0])
		if m := j.Module; filepath.Ext(m) != ".wasm" && strings.HasPrefix(missing[0], m+": ") {
			err = cli.WithHint(err, "a WASI program is a file, such as app.wasm; a container image is given "+
				"with its tag, %s:latest", m)
		}
		return err
	}
	return cli.Usagef("files of the job cannot be read\n%s", strings.Join(missing, "\n"))
}

func jobTable(t *cli.Table, j job.Job) {
	t.Row("job", j.Name)
	if j.Image != "" {
		t.Row("image", j.Image)
	} else {
		t.Row("module", j.Module)
	}
	if c := j.Cluster; c != nil {
		t.Row("cluster", fmt.Sprintf("%s, %s, on a %s network or a faster one", c.Engine,
			cli.Count(int(j.Count), "member"), c.Network))
		if len(c.Command) > 0 {
			t.Row("command", strings.Join(c.Command, " "))
		}
		if c.Autostop > 0 {
			t.Row("autostop", time.Duration(c.Autostop))
		}
	}
	for _, s := range j.Secrets {
		at := "/run/secrets/" + s.FileName()
		if s.Env != "" {
			at = "$" + s.Env
		}
		t.Row("secret", s.Name+" → "+at)
	}
	t.Row("ranks", j.Count)
	t.Row("each", j.UnitsText())
	t.Row("where", j.Placement)
	if j.RoundCount() > 1 {
		t.Row("rounds", j.RoundCount())
	}
	for _, in := range j.Inputs {
		t.Row("input", in.Source+" → "+in.Path)
	}
	for _, out := range j.Outputs {
		t.Row("output", out.Path)
	}
	for _, v := range j.Volumes {
		mode := map[bool]string{true: ", read-only"}[v.ReadOnly]
		t.Row("volume", fmt.Sprintf("%s at %s%s", v.Name, v.Path, mode))
	}
	if c := j.Checkpoint; c != nil {
		t.Row("checkpoint", fmt.Sprintf("%s, every %v", c.Path, time.Duration(c.Every)))
	}
	if j.ScratchMiB > 0 {
		t.Row("scratch", fmt.Sprintf("%d MiB at %s", j.ScratchMiB, job.ScratchPath))
	}
	if j.ShmMiB > 0 {
		t.Row("/dev/shm", fmt.Sprintf("%d MiB", j.ShmMiB))
	}
	if p := j.Restart.Policy; p != job.RestartNever {
		t.Row("restart", fmt.Sprintf("%s, at most %d times", p, j.Restart.Max))
	}
	for _, w := range j.Webhooks {
		t.Row("webhook", w.URL)
	}
	t.Row("time", fmt.Sprintf("%v in the queue, %v running", j.Timeouts.Queue, j.Timeouts.Run))
	if j.Idle > 0 {
		t.Row("idle", fmt.Sprintf("stopped after %v without use", time.Duration(j.Idle)))
	}
	t.Row("price", "at most "+j.Payment.PriceText())
	t.Row("budget", j.Payment.BudgetText())
}
