package clustercmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/livecmd"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/cluster/dashboard"
	"github.com/starling-network/starling/node/live"
)

// enginePorts are the ports of the head that an engine's users need.
var enginePorts = map[string][]int{
	"ray":  {cluster.PortRayDashboard, cluster.PortRayClient},
	"dask": {cluster.PortDaskDashboard, cluster.PortDask},
}

func newClusterForward(a *cli.App) *cobra.Command {
	var o forwardOptions
	c := &cobra.Command{
		Use:   "port-forward NAME [LOCAL:]REMOTE...",
		Short: "Forward local ports to a member",
		Long: `Listens on this machine and forwards every connection to a port of a member, until it is interrupted.
LOCAL is a port on this machine: 0 selects a free one, and the default is REMOTE. Without ports, ray forwards 8265
(dashboard and jobs API) and 10001 (ray.init("ray://…")); dask forwards 8787 (dashboard) and 8786
(Client("tcp://…")). The command prints the addresses to standard output, one per line, and usage for the engine's own
clients to standard error.

A Ray cluster accepts jobs from Ray's own command line (pip install 'ray[default]') and from Python's
ray.job_submission, at the address of port 8265: submit, list, logs, stop, status. The forward adds the cluster's
token to each request on that port, so that neither the clients nor a browser need it. It answers only to 127.0.0.1 and
localhost, and to no page of another site. Every user of this machine can use the cluster meanwhile. --raw forwards the
port unchanged, as does an --address that other machines reach: then pass the token yourself (starling cluster token).
A Ray job ends with its head, and runs on without the forward.`,
		Example: `  starling cluster port-forward sweep
  ray job submit --address http://127.0.0.1:8265 --working-dir . -- python script.py       in another terminal
  ray job logs --address http://127.0.0.1:8265 -f raysubmit_…
  starling cluster port-forward sweep 0:8265
  starling cluster port-forward --rank 2 sweep 6006`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.WithHint(cli.Usagef("port-forward needs a cluster"), "%s", c.UseLine())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return o.run(a, c.Context(), args) },
	}
	c.Flags().IntVar(&o.rank, "rank", 0, "forward to this member; 0 is the head")
	c.Flags().StringVar(&o.address, "address", "127.0.0.1", "address to listen on here")
	c.Flags().BoolVar(&o.raw, "raw", false, "forward ray's dashboard port unchanged, without the token")
	return c
}

// forwardOptions are the flags of cluster port-forward.
type forwardOptions struct {
	rank    int
	address string
	raw     bool
}

// run forwards the ports of a cluster until ctx ends.
func (o forwardOptions) run(a *cli.App, ctx context.Context, args []string) error {
	client, j, err := openCluster(a, ctx, args[0])
	if err != nil {
		return err
	}
	if err := cli.CheckRank(j, o.rank); err != nil {
		return err
	}
	if !ready(j) {
		a.Say("cluster %s is not ready: %s; a port answers once its program listens", j.Spec.Name,
			clusterState(j))
	}
	ports := args[1:]
	if len(ports) == 0 {
		for _, port := range enginePorts[j.Spec.Cluster.Engine] {
			ports = append(ports, strconv.Itoa(port))
		}
	}
	if len(ports) == 0 || len(args) == 1 && o.rank != 0 {
		return cli.WithHint(cli.Usagef("port-forward needs a port of this cluster's program"),
			"starling cluster port-forward %s 8080", j.Spec.Name)
	}
	fs, err := livecmd.OpenForwards(a, client, j.ID, o.rank, o.address, ports)
	if err != nil {
		return err
	}
	var token api.TokenAnswer
	if !o.raw && o.rank == 0 && j.Spec.Cluster.Engine == "ray" {
		if token, err = api.ClusterToken.Call(ctx, client, api.ByID{ID: j.ID}); err != nil {
			livecmd.CloseForwards(fs)
			return err
		}
	}
	livecmd.RunForwards(fs, func(f *livecmd.Forward) func() {
		if token.Token == "" || f.Port != cluster.PortRayDashboard {
			run := f.Plain(ctx)
			if o.rank == 0 {
				ownClient(a, j, f)
			}
			return run
		}
		at, err := netip.ParseAddrPort(f.Listener.Addr().String())
		if err != nil || !at.Addr().IsLoopback() {
			a.Say("port %d: other machines reach this address, so the token is not added: starling cluster token %s",
				f.Port, j.Spec.Name)
			return f.Plain(ctx)
		}
		fmt.Fprintf(a.Out, "http://%s -> port %d of rank %d, with the cluster's token\n", at, f.Port, o.rank)
		a.Say("  ray job submit --address http://%s --working-dir . -- python script.py", at)
		proxy := dashboard.NewProxy(at, dashboard.Config{Token: token.Token, Dial: dialRank(ctx, client, j.ID,
			0, cluster.PortRayDashboard)}, f.Say)
		return func() { serve(f, ctx, proxy) }
	})
	return nil
}

// ownClient prints the command with which the engine's own client uses an unchanged forwarded port of the head.
func ownClient(a *cli.App, j record.Job, f *livecmd.Forward) {
	switch engine := j.Spec.Cluster.Engine; {
	case engine == "ray" && f.Port == cluster.PortRayClient:
		a.Say("  RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(starling cluster token %s) python -c 'import ray; "+
			"ray.init(\"ray://%s\")'", j.Spec.Name, f.Listener.Addr())
	case engine == "dask" && f.Port == cluster.PortDask:
		a.Say("  python -c 'from dask.distributed import Client; Client(\"tcp://%s\")'", f.Listener.Addr())
	}
}

// serve answers HTTP on the port until ctx ends.
func serve(f *livecmd.Forward, ctx context.Context, h http.Handler) {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 30 * time.Second, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = srv.Close()
	})
	if err := srv.Serve(f.Listener); ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
		f.App.Say("port %d: %v", f.Port, err)
	}
	if !stop() {
		<-closed
	}
}

// dialRank connects to a port of a member, for an HTTP client. A connection outlives the request that opened it, and
// ends with ctx at the latest.
func dialRank(ctx context.Context, c *api.Client, id string, rank int, port uint16) func(context.Context) (net.Conn,
	error) {
	return func(context.Context) (net.Conn, error) {
		conn, err := c.Forward(ctx, id, rank, port)
		if err != nil {
			return nil, err
		}
		return &netConn{Conn: conn, rank: rank, port: port}, nil
	}
}

// netConn is a stream to a member as a connection. It ignores deadlines: its users close it.
type netConn struct {
	live.Conn
	rank int
	port uint16
}

func (c *netConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (c *netConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(cluster.Address(uint32(c.rank)), c.port))
}

func (c *netConn) SetDeadline(time.Time) error      { return nil }
func (c *netConn) SetReadDeadline(time.Time) error  { return nil }
func (c *netConn) SetWriteDeadline(time.Time) error { return nil }

func newClusterToken(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "token NAME",
		Short: "Print the token of a Ray cluster",
		Long: `Prints the token that authenticates clients of the cluster. port-forward adds it to requests for Ray's
dashboard; ray.init("ray://…") and programs elsewhere need it. The token lets its holder run any program on the
cluster.`,
		Example: `  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(starling cluster token sweep)`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, j, err := openCluster(a, c.Context(), args[0])
			if err != nil {
				return err
			}
			if e := j.Spec.Cluster.Engine; e != "ray" {
				return cli.Usagef("cluster %s runs %s, which takes no token", j.Spec.Name, e)
			}
			token, err := api.ClusterToken.Call(c.Context(), client, api.ByID{ID: j.ID})
			if err != nil {
				return err
			}
			return a.Show(token, func(t *cli.Table) { t.Row(token.Token) })
		},
	}
}

// nextSteps are the possible next commands for a ready cluster, a line each.
func nextSteps(j record.Job) []string {
	n := j.Spec.Name
	var out []string
	line := func(command, what string) { out = append(out, fmt.Sprintf("  %-62s %s", command, what)) }
	switch j.Spec.Cluster.Engine {
	case "ray":
		line("starling cluster port-forward "+n, "dashboard at http://127.0.0.1:8265; beside it")
		line("  ray job submit --address http://127.0.0.1:8265 --working-dir . -- python script.py", "")
		line("  RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(starling cluster token "+n+")",
			`before ray.init("ray://127.0.0.1:10001")`)
	case "dask":
		line("starling cluster port-forward "+n, `dashboard at http://127.0.0.1:8787; Client("tcp://127.0.0.1:8786")`)
	}
	line("starling cluster exec -it "+n+" -- bash", "a shell on the head; --rank N elsewhere, --all everywhere")
	line("starling cluster status "+n, "members, paths, cost")
	line("starling cluster down "+n, "end it; it is paid for until then")
	for i := range out {
		out[i] = strings.TrimRight(out[i], " ")
	}
	return out
}
