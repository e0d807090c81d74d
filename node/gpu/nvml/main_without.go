//go:build !(cgo && nvml)

package nvml

import (
	"fmt"
	"io"

	"github.com/starling-network/starling/node/gpu"
)

// Main reports that this helper was built without NVIDIA's library.
func Main(_ []string, _ io.Reader, _, errOut io.Writer) int {
	fmt.Fprintf(errOut, "this %s was built without NVIDIA's library: build it with a C compiler and %s\n",
		gpu.HelperName, gpu.HelperBuild)
	return 2
}
