// Command starling is a peer of the Starling network and the command line to it.
package main

import (
	"os"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/runtime/wasm"
)

func main() {
	wasm.ChildMain() // returns unless this process is the sandbox of one program
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
