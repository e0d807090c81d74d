package selection

import (
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/runtime"
)

// Egress returns the least that a job's containers must reach outside.
func Egress(spec job.Job) market.Egress {
	switch {
	case spec.Network != runtime.NetworkInternet:
		return market.EgressNone
	case spec.Cluster != nil: // the provider's listed egress is enough for a cluster
		return market.EgressListed
	}
	return market.EgressInternet
}

// Runs refuses an offer whose provider does not run the job's image, or not with the network that it needs. It returns
// nil for any other.
func Runs(spec job.Job, o market.Offer) *market.Refusal {
	if no := o.Egress.Refuse(Egress(spec)); no != nil {
		return no
	}
	if spec.Image == "" {
		return nil
	}
	images, err := o.Images.Patterns()
	if err == nil {
		err = images.Check(spec.Image)
	}
	var no *market.Refusal
	if err != nil && !errors.As(err, &no) {
		no = market.Refuse(market.ReasonImage, "%v", err)
	}
	return no
}

// Brought returns the bytes of files that are brought from the buyer to the rank that needs most.
func Brought(spec job.Job) int64 {
	var most int64
	bytes := func(source string) int64 {
		if b := spec.Blobs[source]; len(b.URLs) == 0 {
			return b.Size
		}
		return 0
	}
	var image int64
	for _, part := range spec.ImageParts() {
		image += bytes(part)
	}
	for rank := range int(spec.Count) {
		size := bytes(spec.Module) + image
		for _, in := range spec.Inputs {
			size += bytes(in.For(rank))
		}
		most = max(most, size)
	}
	return most
}

// Unlivable returns the reason why a cluster cannot be where its members are so far apart, as the beginning of a
// sentence, or "".
func Unlivable(c *job.Cluster, apart time.Duration) string {
	is := cluster.ClassByRTT(apart)
	if e, err := cluster.LookUp(c.Engine); err == nil {
		if err := e.With(c.Options).LivesOn(is); err != nil {
			return err.Error() + ": "
		}
	}
	if !c.Network.Admits(is) {
		return fmt.Sprintf("want a %s, under %v: ", c.Network, c.Network.RTT())
	}
	return ""
}
