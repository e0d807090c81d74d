package buyer

import (
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
)

// coordinateSlack is how much farther apart than its class allows finalists may be by their coordinates, which are
// never better than that: the real ones are measured.
const coordinateSlack = 5 * time.Millisecond

// chooseCluster proposes members for ranks of a cluster, near to one another and to the members that it has.
func (s *supervisor) chooseCluster(
	o market.Order, res match.Result, n int, spread bool, wanted cluster.Class,
) ([]match.Assignment, []sign.Key, *match.Unschedulable, error) {
	var near match.Near
	if wanted.RTT() > 0 {
		near.Within = wanted.RTT() + coordinateSlack
	}
	for _, l := range s.members() {
		near.Members = append(near.Members, s.b.exchange.Book.Coordinate(l.Core.Provider))
	}
	got, err := match.SelectCluster(o, res, n, spread, near)
	var none *match.Unschedulable
	var far *match.TooFar
	switch {
	case err == nil:
		if got.Diameter > 0 {
			s.trace.Add(Step{At: time.Now(), Kind: StepChosen,
				Detail: fmt.Sprintf("%d of %d providers for a cluster on a %s, by their coordinates up to %v apart", n,
					len(res.Ranked), wanted, record.RoundTrip(got.Diameter))})
		}
		return got.Chosen, got.Spares, nil, nil
	case errors.As(err, &none):
		return nil, nil, none, nil
	case errors.As(err, &far) && far.Apart > 0:
		return nil, nil, nil, &unplaced{thin: o.Draw != match.DrawAll, reason: s.unlivable(far.Apart) +
			fmt.Sprintf("the best %d of %d providers are %v apart", far.Need, far.Of, record.RoundTrip(far.Apart))}
	case errors.As(err, &far):
		return nil, nil, nil, &unplaced{thin: o.Draw != match.DrawAll,
			reason: fmt.Sprintf("a %s is wanted, under %v: fewer than %d of %d providers are that near to the "+
				"cluster's members", wanted, wanted.RTT(), far.Need, far.Of)}
	}
	return nil, nil, nil, err
}

// unlivable says why a cluster cannot be where its members are so far apart: "" if it can.
func (s *supervisor) unlivable(apart time.Duration) string {
	c := s.snapshot().Spec.Cluster
	is := cluster.ClassByRTT(apart)
	if e, err := cluster.LookUp(c.Engine); err == nil {
		if err := e.With(c.Options).LivesOn(is); err != nil {
			return err.Error() + ": "
		}
	}
	if !c.Network.Admits(is) {
		return fmt.Sprintf("a %s is wanted, under %v: ", c.Network, c.Network.RTT())
	}
	return ""
}
