package exchange

import (
	"fmt"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/relay"
	"github.com/starling-network/starling/p2p/stream"
)

// OverRelay returns a warning about bringing size bytes over connections that a relay cuts after most of them. An
// interrupted transfer continues on the next connection; over very small ones it makes no progress, and is refused. A
// most of 0 is no limit.
func OverRelay(size, most int64) (warning string, refused bool) {
	files, cut := stream.Size(size), stream.Size(most)
	switch {
	case most <= 0 || size <= most && most >= relay.LeastData || size <= most/2: // other streams share a connection
		return "", false
	case most < relay.LeastData:
		return fmt.Sprintf("files of %s do not get through a relay that ends a connection after %s; "+
			"use one with relay.dataMiB of 1 or more, or make a direct connection possible", files, cut), true
	}
	return fmt.Sprintf("files of %s go through a relay that ends a connection after %s: they are brought in %d parts "+
		"or more, and exec, cp and port-forward break off at each end", files, cut, (size+most-1)/most), false
}

// Narrow returns the reason that size bytes cannot be brought to a provider over the present connection to it, or "".
func Narrow(h *p2p.Host, provider sign.Key, size int64) string {
	id, err := h.Remember(provider, nil)
	if err != nil {
		return ""
	}
	if text, refused := OverRelay(size, h.Carries(id)); refused {
		return text
	}
	return ""
}
