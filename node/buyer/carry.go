package buyer

import (
	"fmt"

	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/job"
)

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

// checkCarry refuses a job whose files cannot get to any provider, or returns what its user should know. It can tell
// only of a light client, all of whose connections go through its entries.
func (b *Buyer) checkCarry(spec job.Job) (warning string, err error) {
	if b.cfg.Carries == nil {
		return "", nil
	}
	text, refused := exchange.OverRelay(brought(spec), b.cfg.Carries())
	if refused {
		return "", fmt.Errorf("%w: %s (with --direct, providers that can be dialled; or name another entry peer with --peer)", ErrRefused, text)
	}
	return text, nil
}
