package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/live"
)

// maxForwards bounds the connections of one forwarded port; a provider takes no more of one job.
const maxForwards = 64

func newPortForward(a *App) *cobra.Command {
	var rank int
	var address string
	c := &cobra.Command{
		Use:   "port-forward ID [LOCAL:]REMOTE...",
		Short: "Reach a TCP port of a job's program from this machine",
		Long: `Listens on this machine and carries every connection to a port that a rank's program listens on, at its own loopback address,
until it is interrupted. LOCAL is a port here, 0 for a free one; without it the same as REMOTE. The addresses are printed
to standard output, one line each.`,
		Example: `  starling job port-forward jk3v5q2a 8888
  starling job port-forward --rank 1 jk3v5q2a 0:6006 9000:9090`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return WithHint(Usagef("port-forward needs an id and a port"), "%s", c.UseLine())
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
			if err := checkRank(j, rank); err != nil {
				return err
			}
			fs, err := openForwards(a, client, j.ID, rank, address, args[1:])
			if err != nil {
				return err
			}
			runForwards(fs, func(f *forward) func() { return f.plain(ctx) })
			return nil
		},
	}
	c.Flags().IntVar(&rank, "rank", 0, "of this rank")
	c.Flags().StringVar(&address, "address", "127.0.0.1", "address to listen on here")
	return c
}

// forward is one listening port.
type forward struct {
	a      *App
	client *api.Client
	job    string
	rank   int
	port   uint16
	ln     net.Listener
}

func newForward(client *api.Client, job string, rank int, address, arg string) (*forward, error) {
	here, there, both := strings.Cut(arg, ":")
	if !both {
		there = here
	}
	port, err := strconv.ParseUint(there, 10, 16)
	if err != nil || port == 0 {
		return nil, Usagef("%q: %q is not a port from 1 to 65535", arg, there)
	}
	if _, err := strconv.ParseUint(here, 10, 16); err != nil {
		return nil, Usagef("%q: %q is not a port from 0 to 65535", arg, here)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(address, here))
	if err != nil {
		return nil, WithHint(fmt.Errorf("listening for port %d: %w", port, err), "0:%d takes a free port", port)
	}
	return &forward{client: client, job: job, rank: rank, port: uint16(port), ln: ln}, nil
}

// openForwards listens for the ports, or for none of them.
func openForwards(a *App, client *api.Client, id string, rank int, address string, ports []string) ([]*forward, error) {
	if ip := net.ParseIP(address); ip == nil {
		return nil, Usagef("--address: %q is not an IP address", address)
	}
	var forwards []*forward
	for _, arg := range ports {
		f, err := newForward(client, id, rank, address, arg)
		if err != nil {
			closeForwards(forwards)
			return nil, err
		}
		f.a = a
		forwards = append(forwards, f)
	}
	return forwards, nil
}

func closeForwards(fs []*forward) {
	for _, f := range fs {
		f.ln.Close()
	}
}

// runForwards serves them all until each is done. begin prints the address of one, in order, and returns its server.
func runForwards(fs []*forward, begin func(*forward) (run func())) {
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(begin(f))
	}
	wg.Wait()
}

// plain prints the port's address, and returns the function that carries its connections unchanged.
func (f *forward) plain(ctx context.Context) (run func()) {
	fmt.Fprintf(f.a.Out, "%s -> port %d of rank %d\n", f.ln.Addr(), f.port, f.rank)
	return func() { f.run(ctx) }
}

// say prints the error of a connection with its remedy.
func (f *forward) say(err error) {
	text := err.Error()
	if hint := explain(err).Hint; hint != "" {
		text += "; hint: " + hint
	}
	f.a.say("port %d: %s", f.port, text)
}

// run takes connections until ctx ends.
func (f *forward) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { f.ln.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, maxForwards)
	for {
		conn, err := f.ln.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				f.a.say("port %d: %v", f.port, err)
			}
			return
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			to, err := f.client.Forward(ctx, f.job, f.rank, f.port)
			if err != nil {
				if ctx.Err() == nil {
					f.say(err)
				}
				return
			}
			if err := live.Splice(ctx, conn, to); err != nil {
				f.say(err)
			}
		})
	}
}
