// Package helper is the program starling-cuda: it answers the peer that starts it, and tests a GPU for an operator.
package helper

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/term"

	"github.com/starling-network/starling/node/device/cuda"
	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/wire"
)

// Exit codes.
const (
	exitOK        = 0
	exitFailed    = 1 // the driver failed, or the GPU computes something else than the processor
	exitUsage     = 2
	exitNoLibrary = 3 // libcuda.so.1 is not there
)

const usage = cuda.HelperName + ` answers challenges with an NVIDIA GPU on behalf of starling, which starts it.

	` + cuda.HelperName + ` --self-test [--quick]

compares the first GPU that CUDA_VISIBLE_DEVICES leaves with the processor, bit for bit over many sizes, and measures
its products, fills and walks; --quick compares small sizes and measures nothing. Exit codes: 0 all is the same, 1 it is
not or the driver fails, 3 libcuda.so.1 is not there.
`

// Main answers a peer's questions on in and out until in ends, or runs the action of the arguments, and returns the
// exit code. open opens the GPU, once.
func Main(args []string, in io.Reader, out, errOut io.Writer, open func() (engine.GPU, wire.Description, error)) int {
	flags := flag.NewFlagSet(cuda.HelperName, flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.Usage = func() { fmt.Fprint(errOut, usage) }
	test := flags.Bool("self-test", false, "compare a GPU with the processor and measure it")
	quick := flags.Bool("quick", false, "compare small sizes only")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	}
	f, isFile := in.(*os.File)
	byHand := isFile && term.IsTerminal(int(f.Fd()))
	if flags.NArg() > 0 || !*test && (byHand || *quick) {
		fmt.Fprint(errOut, usage)
		return exitUsage
	}
	// A CUDA context belongs to the thread that made it current.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var err error
	switch {
	case *quick:
		err = selfTest(out, open, quickly)
	case *test:
		err = selfTest(out, open, fully)
	default:
		err = engine.Serve(in, out, open)
	}
	switch {
	case engine.IsNoLibrary(err):
		fmt.Fprintf(errOut, "libcuda.so.1 is not there, so this machine has no NVIDIA driver: %v\n", err)
		return exitNoLibrary
	case err != nil:
		fmt.Fprintln(errOut, err)
		return exitFailed
	}
	return exitOK
}
