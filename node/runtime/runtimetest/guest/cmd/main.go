// Command cmd is the conformance program for runtimes that run real programs: built with GOOS=wasip1 GOARCH=wasm for
// runtime/wasm, as a static Linux binary for runtime/docker.
package main

import (
	"os"

	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
)

func main() { os.Exit(guest.Conformance(&guest.OS{})) }
