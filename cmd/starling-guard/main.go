// Command starling-guard is the part of a peer inside containers: their first process, the remote shell of clusters,
// the probes of audits, the SFTP server, and the OCI runtime that operators name in their engine's daemon.json. It is
// beside starling. Engine and containers start it several times for each job; it starts in a third of the time of the
// whole peer.
package main

import (
	"fmt"
	"os"

	"github.com/starling-network/starling/node/runtime/agent"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/ociruntime"
	"github.com/starling-network/starling/node/runtime/gauge"
	"github.com/starling-network/starling/node/runtime/keeper"
	"github.com/starling-network/starling/node/runtime/sftpd"
)

func main() {
	ociruntime.Main() // returns unless this process replaces runc
	agent.Main()      // returns unless this process is a cluster's remote shell inside a container
	guard.Main()      // returns unless this process is the first of a container
	gauge.Main()      // returns unless it computes a probe inside one
	sftpd.Main()      // returns unless it serves the files inside one
	keeper.Main()     // returns unless it is a program that waits for its user
	fmt.Fprintln(os.Stderr, "starling-guard is started by peers and container engines; see starling provider --help")
	os.Exit(2)
}
