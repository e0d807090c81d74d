package livecmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/live"
)

// maxForwards bounds the connections of one forwarded port; a provider accepts at most that many for one job.
const maxForwards = 64

func newPortForward(a *cli.App) *cobra.Command {
	var rank int
	var address string
	c := &cobra.Command{
		Use:   "port-forward ID [LOCAL:]REMOTE...",
		Short: "Forward local ports to a job's program",
		Long: `Listens on this machine and forwards every connection to a port on the loopback address of a rank's
program, until it is interrupted. LOCAL is a port on this machine: 0 selects a free one, and the default is REMOTE. The
addresses are printed to standard output, one per line.`,
		Example: `  starling job port-forward jk3v5q2a 8888
  starling job port-forward --rank 1 jk3v5q2a 0:6006 9000:9090`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.WithHint(cli.Usagef("port-forward needs an id and a port"), "%s", c.UseLine())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			client, err := a.Client()
			if err != nil {
				return err
			}
			j, err := api.GetJob.Call(ctx, client, api.ByID{ID: args[0]})
			if err != nil {
				return err
			}
			if err := cli.CheckRank(j, rank); err != nil {
				return err
			}
			if end, over := j.Result(); over {
				return cli.WithHint(fmt.Errorf("job %s has ended: %s, so nothing listens in it", j.ID, end),
					"starling job rerun %s", j.ID)
			}
			fs, err := OpenForwards(a, client, j.ID, rank, address, args[1:])
			if err != nil {
				return err
			}
			if j.Spec.Runtime == job.RuntimeWasm {
				if err := portless(ctx, fs[0]); err != nil {
					CloseForwards(fs)
					return err
				}
			}
			RunForwards(fs, func(f *Forward) func() { return f.Plain(ctx) })
			return nil
		},
	}
	c.Flags().IntVar(&rank, "rank", 0, "forward to this rank")
	c.Flags().StringVar(&address, "address", "127.0.0.1", "address to listen on here")
	return c
}

// portless connects once, and returns an error if the program is a WASI program, which has no ports.
func portless(ctx context.Context, f *Forward) error {
	conn, err := f.client.Forward(ctx, f.job, f.rank, f.Port)
	if err == nil {
		_ = conn.Close()
		return nil
	}
	if refused, ok := errors.AsType[*api.Error](err); ok && refused.Code == "runtime" {
		return cli.WithHint(err, "port-forward is for containers: starling run IMAGE")
	}
	return nil // each connection reports the same error
}

// Forward is one listening port.
type Forward struct {
	App      *cli.App
	client   *api.Client
	job      string
	rank     int
	Port     uint16
	Listener net.Listener
}

func newForward(client *api.Client, job string, rank int, address, arg string) (*Forward, error) {
	here, there, both := strings.Cut(arg, ":")
	if !both {
		there = here
	}
	port, err := strconv.ParseUint(there, 10, 16)
	if err != nil || port == 0 {
		return nil, cli.Usagef("%q: %q is not a port from 1 to 65535", arg, there)
	}
	if _, err := strconv.ParseUint(here, 10, 16); err != nil {
		return nil, cli.Usagef("%q: %q is not a port from 0 to 65535", arg, here)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(address, here))
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("listening for port %d: %w", port, err), "0:%d takes a free port", port)
	}
	return &Forward{client: client, job: job, rank: rank, Port: uint16(port), Listener: ln}, nil
}

// OpenForwards listens on all of the ports, or on none after an error.
func OpenForwards(a *cli.App, client *api.Client, id string, rank int, address string, ports []string) ([]*Forward,
	error) {
	if ip := net.ParseIP(address); ip == nil {
		return nil, cli.Usagef("--address: %q is not an IP address", address)
	}
	var forwards []*Forward
	for _, arg := range ports {
		f, err := newForward(client, id, rank, address, arg)
		if err != nil {
			CloseForwards(forwards)
			return nil, err
		}
		f.App = a
		forwards = append(forwards, f)
	}
	return forwards, nil
}

// CloseForwards stops listening on the ports.
func CloseForwards(fs []*Forward) {
	for _, f := range fs {
		f.Listener.Close()
	}
}

// RunForwards serves all ports until each has ended. begin prints the address of a port and returns its server.
func RunForwards(fs []*Forward, begin func(*Forward) (run func())) {
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(begin(f))
	}
	wg.Wait()
}

// Plain prints the port's address, and returns a function that forwards its connections unchanged.
func (f *Forward) Plain(ctx context.Context) (run func()) {
	fmt.Fprintf(f.App.Out, "%s -> port %d of rank %d\n", f.Listener.Addr(), f.Port, f.rank)
	return func() { f.Run(ctx) }
}

// Say prints the error of a connection with its remedy.
func (f *Forward) Say(err error) {
	text := err.Error()
	if hint := cli.Explain(err).Hint; hint != "" {
		text += "; hint: " + hint
	}
	f.App.Say("port %d: %s", f.Port, text)
}

// Run accepts connections until ctx ends.
func (f *Forward) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { f.Listener.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, maxForwards)
	for {
		conn, err := f.Listener.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				f.App.Say("port %d: %v", f.Port, err)
			}
			return
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			to, err := f.client.Forward(ctx, f.job, f.rank, f.Port)
			if err != nil {
				if ctx.Err() == nil {
					f.Say(err)
				}
				return
			}
			if err := live.Splice(ctx, conn, to); err != nil {
				f.Say(err)
			}
		})
	}
}
