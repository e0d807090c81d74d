package mystery

import (
	"context"
	"time"

	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/client"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/verify/exclusive"
)

// submitWait is how long an identity waits for an entry peer.
const submitWait = 30 * time.Second

// Light opens identities as ordinary light clients, with a configuration that lacks their home. The peers by which they enter the network
// should not be the verifier.
func Light(cfg client.Config) func(ctx context.Context, home string) (Renter, error) {
	return func(ctx context.Context, home string) (Renter, error) {
		cfg := cfg
		cfg.Home = home
		c, err := client.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return Renting{c}, nil
	}
}

// Renting is a light client as a Renter.
type Renting struct{ *client.Client }

// Probes are the records of a job's probes.
func (r Renting) Probes(ctx context.Context, id string) ([]exclusive.Record, error) {
	return r.Buyer().Probes(ctx, id)
}

// Submit takes the job's files in and hands it in once.
func (r Renting) Submit(ctx context.Context, once string, spec job.Job) (buyer.Job, error) {
	if !spec.Uploaded() {
		var err error
		if spec, err = r.Upload(ctx, spec); err != nil {
			return buyer.Job{}, err
		}
	}
	r.Ready(ctx, submitWait)
	return r.Buyer().Submit(ctx, buyer.Submission{Spec: spec, Once: once})
}
