package buyer

import (
	"fmt"

	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/relay"
	"github.com/starling-network/starling/p2p/stream"
)

// carry says what it means to bring so many bytes over connections that a relay cuts after most of them; 0 is no limit. What
// is cut goes on over the next connection, which is worth a warning; over very small ones it comes no further.
func carry(size, most int64) (warning string, refused bool) {
	switch {
	case most <= 0 || size <= most && most >= relay.LeastData || size <= most/2: // other streams share a connection
		return "", false
	case most < relay.LeastData:
		return fmt.Sprintf("files of %s do not get through a relay that ends a connection after %s; use one with relay.dataMiB of 1 or more, or make a direct connection possible",
			stream.Size(size), stream.Size(most)), true
	}
	return fmt.Sprintf("files of %s go through a relay that ends a connection after %s: they are brought in %d parts or more, and exec, cp and port-forward break off at each end",
		stream.Size(size), stream.Size(most), (size+most-1)/most), false
}

// brought is how many bytes of files the rank that needs most has to be brought.
func brought(spec job.Job) int64 {
	var most int64
	for rank := range int(spec.Count) {
		size := spec.Blobs[spec.Module].Size
		for _, in := range spec.Inputs {
			size += spec.Blobs[in.For(rank)].Size
		}
		most = max(most, size)
	}
	return most
}

// checkCarry refuses a job whose files cannot get to any provider, or returns what its user should know. It can tell only of a
// light client, all of whose connections go through its entries.
func (b *Buyer) checkCarry(spec job.Job) (warning string, err error) {
	if b.cfg.Carries == nil {
		return "", nil
	}
	text, refused := carry(brought(spec), b.cfg.Carries())
	if refused {
		return "", fmt.Errorf("%w: %s (with --direct, providers that can be dialled; or name another entry peer with --peer)", ErrRefused, text)
	}
	return text, nil
}

// narrow says why the files of a job cannot be brought to the provider of a quote, as far as the connection to it tells; "" when
// they can.
func (b *Buyer) narrow(spec job.Job, q quoted) string {
	id, err := b.remember(q.quote.Provider, nil)
	if err != nil {
		return ""
	}
	text, refused := carry(brought(spec), b.cfg.Host.Carries(id))
	if !refused {
		return ""
	}
	return text
}
