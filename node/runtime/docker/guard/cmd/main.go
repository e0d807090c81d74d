// Command cmd is a guard and nothing else, for tests and for peers with a binary that is not static.
package main

import (
	"fmt"
	"os"

	"github.com/starling-network/starling/node/runtime/agent"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/ociruntime"
	"github.com/starling-network/starling/node/runtime/gauge"
)

func main() {
	agent.Main()
	ociruntime.Main()
	guard.Main()
	gauge.Main()
	fmt.Fprintln(os.Stderr, "this program is the first process of a container and is started by a peer")
	os.Exit(2)
}
