package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/proof"
)

// App is the context of every command.
type App struct {
	In       io.Reader
	Out, Err io.Writer
	// Getenv is os.Getenv, or a test's.
	Getenv func(string) string

	Commands []func(*App) *cobra.Command
	// openChain reads a network's chain; nil means Solana.
	OpenChain func(rpc []string, g market.Genesis) (proof.Chain, error)

	ctx     context.Context // of the command line
	home    string          // --home
	peer    string          // --peer
	peerSet bool            // --peer was given, perhaps empty
	Pin     string          // --genesis, of a light client
	PSK     string          // --psk, of a light client
	Direct  bool            // --direct, of a light client
	Output  output          // -o
	started bool            // the command line was parsed and the command's function was called
}

// The groups that help lists commands in.
const (
	GroupJobs     = "jobs"
	GroupPeer     = "peer"
	GroupMoney    = "money"
	GroupNetworks = "networks"
)

var groups = []*cobra.Group{
	{ID: GroupJobs, Title: "Jobs:"},
	{ID: GroupPeer, Title: "Peers and the market:"},
	{ID: GroupMoney, Title: "Money and proofs:"},
	{ID: GroupNetworks, Title: "Networks:"},
}

// Main runs the command line of these commands and returns its exit code. The first interrupt or termination signal
// cancels the command's context; a second one ends the process.
func Main(args []string, in io.Reader, out, errOut io.Writer, commands []func(*App) *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	a := &App{In: in, Out: out, Err: errOut, Getenv: os.Getenv, Commands: commands}
	return a.Run(ctx, args)
}

// Run runs one command line and returns its exit code.
func (a *App) Run(ctx context.Context, args []string) int {
	a.ctx = ctx
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !a.started {
		err = asUsage(root, args, err)
	}
	return a.report(err)
}

const rootLong = `Starling is a peer-to-peer worker network: peers sell compute by the unit-hour, find each other
without a coordinator, run jobs for one another and are paid on Solana, interval by interval.

This program is a peer, the command line to it, and a network of peers on your own machine.`

const rootExample = `  starling testnet demo                              watch five peers do a job and get paid
  starling init --genesis FILE --bootstrap ADDR --solana-rpc URL && starling up
                                                     join a network
  starling run --count 3 --max-price 0.05 app.wasm   run a program on three peers
  starling submit job.yaml                           the same from a job file
  starling --peer ADDR run app.wasm                  the same without a peer of your own`

const rootEnd = `
Exit codes:
  0    done
  1    the job failed, or an error without a code of its own
  2    the command line, a job file or a configuration is wrong
  3    no fitting provider accepted the job
  4    payment: budget, funds or the chain
  5    the peer or a provider cannot be reached, or the connection broke off
  6    the job lost providers more often than restart.max allows
  7    the peer failed: its disk or its journal
  124  a time limit was reached
  exec, ssh and run -it end with the exit code of their command, 130 when interrupted, as cluster up does

Environment:
  STARLING_HOME    the peer's directory, as --home; else $XDG_DATA_HOME/starling (~/.local/share/starling)
  STARLING_PEER    addresses of entry peers, as --peer (starling client --help)
  XDG_CACHE_HOME   where compiled programs are kept (~/.cache)
`

func newRoot(a *App) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:           "starling",
		Short:         "A peer-to-peer worker network paid on Solana",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          OnlyCommands,
		RunE: func(c *cobra.Command, _ []string) error {
			if version {
				return showVersion(a)
			}
			return c.Help()
		},
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			a.started = true
			a.peerSet = c.Flags().Changed("peer")
			return nil
		},
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.Flags().BoolVar(&version, "version", false, "show the version of this program")
	root.CompletionOptions.HiddenDefaultCmd = true
	a.Output = OutputTable
	root.PersistentFlags().StringVar(&a.home, "home", "",
		"directory of the peer (default: see Environment)")
	root.PersistentFlags().StringVar(&a.peer, "peer", "",
		"entry peers of a light client: addresses, separated by commas")
	root.PersistentFlags().StringVar(&a.Pin, "genesis", "",
		"with --peer, at first use: hash or file of the genesis")
	root.PersistentFlags().StringVar(&a.PSK, "psk", "",
		"with --peer, at first use: swarm.key of a private network")
	root.PersistentFlags().BoolVar(&a.Direct, "direct", false,
		"with --peer: dial providers directly if possible")
	root.PersistentFlags().VarP(&a.Output, "output", "o", "table, json or yaml")
	used := map[string]bool{}
	for _, newCommand := range a.Commands {
		c := newCommand(a)
		used[c.GroupID] = true
		root.AddCommand(c)
	}
	for _, g := range groups {
		if used[g.ID] {
			root.AddGroup(g)
		}
	}
	usage := root.UsageTemplate()
	root.SetUsageTemplate(usage + "{{if not .HasParent}}" + rootEnd + "{{end}}")
	return root
}

// ExactArgs refuses any other number of arguments, with the command's usage line.
func ExactArgs(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		err := Usagef("%s needs %d arguments, not %d", c.Name(), n, len(args))
		switch {
		case len(args) > n:
			err = Usagef("%s does not take %q", c.Name(), args[n])
		case n == 1:
			err = Usagef("%s needs an argument", c.Name())
		}
		return WithHint(err, "%s", c.UseLine())
	}
}

// asUsage turns cobra's error about a command line into a usage error with a hint.
func asUsage(root *cobra.Command, args []string, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	at := "starling --help"
	if c, rest, findErr := root.Find(args); findErr == nil {
		at = c.CommandPath() + " --help"
		if c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") { // an unknown command with flags
			return OnlyCommands(c, rest)
		}
	}
	return &Error{Code: ExitUsage, Err: err, Hint: at}
}
