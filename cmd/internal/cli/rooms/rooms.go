// Package rooms lists the commands of starling, in the order of help. Its tests cover all commands, and jobs that run
// the same way on a peer and a light client. Other tests are beside their commands.
package rooms

import (
	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/attend"
	"github.com/starling-network/starling/cmd/internal/cli/clustercmd"
	"github.com/starling-network/starling/cmd/internal/cli/imagecmd"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/prunecmd"
	"github.com/starling-network/starling/cmd/internal/cli/livecmd"
	"github.com/starling-network/starling/cmd/internal/cli/marketcmd"
	"github.com/starling-network/starling/cmd/internal/cli/moneycmd"
	"github.com/starling-network/starling/cmd/internal/cli/networkcmd"
	"github.com/starling-network/starling/cmd/internal/cli/peercmd"
	"github.com/starling-network/starling/cmd/internal/cli/proofcmd"
	"github.com/starling-network/starling/cmd/internal/cli/templatecmd"
	"github.com/starling-network/starling/cmd/internal/cli/testnetcmd"
	"github.com/starling-network/starling/cmd/internal/cli/volumecmd"
)

// Commands are all commands, in the order of help within their groups.
var Commands = []func(*cli.App) *cobra.Command{
	newRun,
	jobcmd.NewSubmit,
	jobcmd.NewQuote,
	jobcmd.NewPs,
	jobcmd.NewStatus,
	jobcmd.NewLogs,
	jobcmd.NewWhy,
	jobcmd.NewWait,
	jobcmd.NewGet,
	livecmd.NewExec,
	livecmd.NewCp,
	livecmd.NewSSH,
	jobcmd.NewStop,
	attend.NewNotebook,
	newJob,
	imagecmd.NewImage,
	clustercmd.NewCluster,
	volumecmd.NewVolume,
	peercmd.NewInit,
	peercmd.NewUp,
	marketcmd.NewOffers,
	peercmd.NewPeer,
	marketcmd.NewProvider,
	peercmd.NewClient,
	moneycmd.NewWallet,
	moneycmd.NewStake,
	proofcmd.NewProof,
	networkcmd.NewNetwork,
	testnetcmd.NewTestnet,
}

// newJob combines the commands on all jobs, running jobs and templates.
func newJob(a *cli.App) *cobra.Command {
	return jobcmd.NewJob(a, append(livecmd.Control(a), templatecmd.New(a), prunecmd.New(a))...)
}

// newRun gives run its templates and the terminals of livecmd.
func newRun(a *cli.App) *cobra.Command {
	return templatecmd.NewRun(a, attend.Terminal(livecmd.Session))
}
