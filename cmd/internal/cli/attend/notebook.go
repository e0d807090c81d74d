package attend

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
	"github.com/starling-network/starling/cmd/internal/cli/livecmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

const (
	// jupyterImage is the image without --image, by its current tag.
	jupyterImage = "quay.io/jupyter/scipy-notebook:latest"
	// jupyterPort is the port of Jupyter in the container, and here if it is free.
	jupyterPort = "8888"
	// jupyterToken is the variable from which Jupyter takes its token, and tokenSource a variable here that has it only
	// inside this process.
	jupyterToken, tokenSource = "JUPYTER_TOKEN", "STARLING_NOTEBOOK_TOKEN"
	// answerTime is how long Jupyter may take from the start of its container until it accepts connections.
	answerTime = 5 * time.Minute
	pollTime   = 250 * time.Millisecond
)

const notebookLong = `Runs a Jupyter image, forwards a port of this computer to it, and prints the address with its
token. The token is random, and sealed to the provider as a secret; the connection is the job's own stream, so that no
port is opened to the internet. With the flags of starling run the job gets GPUs, memory, inputs and its highest
price.

An interrupt ends the job, and with it the payment; --leave leaves it running. Unused for 30 minutes it stops by itself
(--idle). It ends at --timeout and never costs more than its budget. Files are lost with the job, but those below --out
can be copied while it runs (starling cp, starling ssh).

HOME and the working directory are /scratch, on the disk of the lease, with the size of --scratch (default 1Gi; 0Mi for
those of the image, which some providers mount read-only). Arguments after -- replace the image's command. An image of
your own must have Jupyter as its command and take its token from JUPYTER_TOKEN, as every Jupyter server does.`

// NewNotebook makes the command `starling notebook`.
func NewNotebook(a *cli.App) *cobra.Command {
	var image, port string
	var open, leave bool
	c := &cobra.Command{
		Use:   "notebook [flags of run] [-- ARGS]",
		Short: "Run Jupyter on another peer and open it here",
		Long:  notebookLong,
		Example: `  starling notebook --max-price 0.05
  starling notebook --max-price 2.50 --gpus 1 --network internet --image quay.io/jupyter/pytorch-notebook:cuda12-latest
  starling notebook --max-price 0.05 -i data.csv:/in/data.csv --out /out --timeout 8h --open`,
		GroupID: cli.GroupJobs,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && c.ArgsLenAtDash() != 0 {
				return cli.WithHint(cli.Usagef("notebook does not take %q", args[0]),
					"give the image as --image %s", args[0])
			}
			return nil
		},
	}
	flags := jobcmd.JobFlags(c)
	c.Flags().StringVar(&image, "image", jupyterImage, "image with Jupyter as its command")
	c.Flags().StringVar(&port, "port", jupyterPort, "port of Jupyter in the container")
	c.Flags().BoolVar(&open, "open", false, "open the address in a browser")
	c.Flags().BoolVar(&leave, "leave", false, "leave the job running at an interrupt")
	c.RunE = func(c *cobra.Command, args []string) error {
		network, err := jobcmd.Token(a)
		if err != nil {
			return err
		}
		if err := a.WholeKeys(c.Context(), flags.Exclude); err != nil {
			return err
		}
		flags.Module, flags.Args = image, args
		if flags.Name == "" {
			flags.Name = "notebook"
		}
		flags.SecretEnv = append(flags.SecretEnv, jupyterToken+"=env:"+tokenSource)
		if flags.Scratch == "" {
			flags.Scratch = "1Gi"
		}
		spec, err := flags.Job(network)
		if err != nil {
			return err
		}
		if spec.Runtime != job.RuntimeDocker || spec.Count != 1 {
			return cli.Usagef("a notebook is one container: give --image an image, and no --count")
		}
		n := notebook{App: a, port: port, open: open, leave: leave, token: randomToken()}
		return n.run(c.Context(), inScratch(jobcmd.Attended(spec, c)))
	}
	return c
}

// inScratch lets the program keep its files on the disk of the lease, which every provider has.
func inScratch(spec job.Job) job.Job {
	if spec.ScratchMiB == 0 {
		return spec
	}
	env := map[string]string{"HOME": job.ScratchPath}
	for k, v := range spec.Env {
		env[k] = v
	}
	spec.Env = env
	if spec.WorkDir == "" {
		spec.WorkDir = job.ScratchPath
	}
	return spec
}

func randomToken() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// notebook is one run of the command.
type notebook struct {
	*cli.App
	port, token string
	open, leave bool
}

func (n notebook) run(ctx context.Context, spec job.Job) error {
	if _, err := strconv.ParseUint(n.port, 10, 16); err != nil {
		return cli.Usagef("--port: %.40q is not a port", n.port)
	}
	getenv := n.Getenv
	n.Getenv = func(name string) string {
		if name == tokenSource {
			return n.token
		}
		return getenv(name)
	}
	c, g, j, err := jobcmd.HandIn(n.App, ctx, spec, jobcmd.SubmitOptions{})
	if err != nil {
		return err
	}
	if j, err = await(n.App, ctx, c, g, j); err != nil {
		return err
	}
	if err = n.serve(ctx, c, g, j); err == nil && n.leave && ctx.Err() != nil {
		n.Say("job %s runs on. Come back with `starling job port-forward %[1]s %s` and "+
			"http://127.0.0.1:%[2]s/?token=%s, end it with `starling stop %[1]s`", j.ID, n.port, n.token)
		return nil
	}
	if err == nil || ctx.Err() != nil {
		end(n.App, ctx, c, g, j)
	}
	return err
}

// serve forwards the port until ctx or the job ends.
func (n notebook) serve(ctx context.Context, c *api.Client, g market.Genesis, j record.Job) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := n.answers(ctx, c, j); err != nil {
		return err
	}
	fs, err := livecmd.OpenForwards(n.App, c, j.ID, 0, "127.0.0.1", []string{n.local() + ":" + n.port})
	if err != nil {
		return err
	}
	at := fmt.Sprintf("http://%s/?token=%s", fs[0].Listener.Addr(), n.token)
	fmt.Fprintln(n.Out, at)
	if n.leave {
		n.Say("an interrupt ends this command and leaves the job")
	} else {
		n.Say("an interrupt ends the job")
	}
	if n.open {
		browse(n.App, at)
	}
	ended := make(chan record.Job, 1)
	go func() {
		defer cancel()
		defer close(ended)
		_ = c.Events(ctx, j.ID, nil, func(now record.Job) {
			if over(now) {
				ended <- now
				cancel()
			}
		})
	}()
	livecmd.RunForwards(fs, func(f *livecmd.Forward) func() { return func() { f.Run(ctx) } })
	cancel()
	if now, over := <-ended; over {
		n.Say("%s", jobcmd.Summary(g, now))
		return cli.WithHint(cli.JobError(now), "starling logs %s", j.ID)
	}
	return nil
}

// answers waits until Jupyter accepts connections.
func (n notebook) answers(ctx context.Context, c *api.Client, j record.Job) error {
	port, _ := strconv.ParseUint(n.port, 10, 16) // checked before
	p := n.Progress()
	defer p.Clear()
	for end := time.After(answerTime); ; {
		p.Status("job %s: waiting for Jupyter at port %d", j.ID, port)
		conn, err := c.Forward(ctx, j.ID, 0, uint16(port))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-end:
			return cli.WithHint(fmt.Errorf("job %s runs on without an answer of Jupyter: %w", j.ID, err),
				"starling logs %s; starling stop %[1]s ends it", j.ID)
		case <-time.After(pollTime):
		}
		now, err := api.GetJob.Call(ctx, c, api.ByID{ID: j.ID})
		if err == nil && over(now) {
			return cli.WithHint(cli.JobError(now), "starling logs %s", j.ID)
		}
	}
}

// local is the port here: the same as in the container if it is free.
func (n notebook) local() string {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", n.port))
	if err != nil {
		return "0"
	}
	ln.Close()
	return n.port
}

// browse opens an address in the user's browser.
func browse(a *cli.App, at string) {
	command := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		command = []string{"open"}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	cmd := exec.Command(command[0], append(command[1:], at)...)
	if err := cmd.Start(); err != nil {
		a.Say("warning: no browser was opened: %v", err)
		return
	}
	go func() { _ = cmd.Wait() }()
}
