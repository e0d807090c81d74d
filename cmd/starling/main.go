// Command starling is a peer of the Starling network and the command line to it.
package main

import (
	"os"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/rooms"
	"github.com/starling-network/starling/node/runtime/agent"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/gauge"
	"github.com/starling-network/starling/node/runtime/keeper"
	"github.com/starling-network/starling/node/runtime/sftpd"
	"github.com/starling-network/starling/node/runtime/wasm"
)

func main() {
	wasm.ChildMain() // returns unless this process is the sandbox of one program
	agent.Main()     // returns unless this process is a cluster's remote shell inside a container
	guard.Main()     // returns unless this process is the first of a container
	gauge.Main()     // returns unless it computes a probe inside one
	sftpd.Main()     // returns unless it serves the files inside one
	keeper.Main()    // returns unless it is a program that waits for its user
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, rooms.Commands))
}
