//go:build cgo && nvml

package nvml

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/term"

	"github.com/starling-network/starling/node/gpu"
)

// Main answers a peer's requests on in and out until in ends, and returns the exit code.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	flags := flag.NewFlagSet(gpu.HelperName, flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.Usage = func() { fmt.Fprint(errOut, gpu.HelperUsage) }
	mock := flags.String("mock", "", "simulate one of NVIDIA's machines")
	seed := flags.String("seed", "", "seed of the UUIDs of simulated devices")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	f, isFile := in.(*os.File)
	byHand := isFile && term.IsTerminal(int(f.Fd()))
	if flags.NArg() > 0 || byHand {
		fmt.Fprint(errOut, gpu.HelperUsage)
		return 2
	}
	open := func() (gpu.Backend, error) { return openDriver() }
	if *mock != "" {
		open = func() (gpu.Backend, error) { return newMock(*mock, *seed) }
	}
	if err := gpu.Serve(in, out, open); err != nil {
		fmt.Fprintln(errOut, err)
		return 1
	}
	return 0
}

// openDriver opens the machine's own library and begins to listen for Xid events.
func openDriver() (gpu.Backend, error) {
	d, err := open(nvml.New())
	if err != nil {
		return nil, err
	}
	d.xids = watch(d)
	return d, nil
}
