package node

import (
	"bytes"
	"slices"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/guardian/wards"
)

// guarded is the jobs that a peer guards, for the local API.
type guarded struct {
	*wards.Service
	self sign.Key
}

// Guarded lists the jobs of others that this peer guards, by their id.
func (g guarded) Guarded() []api.GuardedJob {
	out := []api.GuardedJob{}
	for _, c := range g.Jobs() {
		w, panel, ok := g.Service.Guarded(c.Job)
		if !ok {
			continue
		}
		panel.Close()
		by := w.Supervisor(w.Epoch)
		out = append(out, api.GuardedJob{
			Job: w.Job, Owner: w.Owner, Guardians: w.Keys.Keys, Epoch: w.Epoch, Supervisor: by,
			Mine: by == g.self && !w.Over, Over: w.Over, Until: w.Until,
		})
	}
	slices.SortFunc(out, func(x, y api.GuardedJob) int { return bytes.Compare(x.Job[:], y.Job[:]) })
	return out
}
