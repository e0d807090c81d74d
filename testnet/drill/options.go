package drill

import "io"

// Options of a drill.
type Options struct {
	Dir    string    // for all that it writes
	RPC    string    // of a local validator that runs already; "" starts one
	Out    io.Writer // output for the person watching
	Binary string    // of the peers; "" is this one
}
