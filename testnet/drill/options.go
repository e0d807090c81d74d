package drill

import "io"

// Options of a drill.
type Options struct {
	Dir    string    // directory of the output
	RPC    string    // URL of a running local validator; "" starts one
	Out    io.Writer // output for the person watching
	Binary string    // the peers' program; "" is this one
}
