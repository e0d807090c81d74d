package plans

import (
	"context"
	"slices"

	"github.com/starling-network/starling/node/buyer/gangs"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/store"
)

// pathsNow are the paths between the members of the job's cluster, none for another one.
func (p *Plans) pathsNow(ctx context.Context) ([]cluster.Path, error) {
	p.mu.Lock()
	known := p.paths
	p.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	// A job that is being stopped does not fail for it.
	read, err := mesh.Paths(context.WithoutCancel(ctx), p.cfg.Store, p.ID)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paths == nil { // else a gang formed meanwhile
		p.paths = &read
	}
	return *p.paths, nil
}

// setPaths sets them; nil: they are to be read again.
func (p *Plans) setPaths(paths *[]cluster.Path) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paths = paths
}

// Formed reports the leases of a gang of members, with the paths between them.
func (p *Plans) Formed(ev run.Event, g *gangs.Gang) {
	if p.measuring.Acquire(p.Context(), 1) != nil {
		return
	}
	defer p.measuring.Release(1)
	for {
		err := p.formed(ev, g.Paths)
		if err == nil || p.Context().Err() != nil {
			return
		}
		p.cfg.Log.Error("the paths between members are not journalled; trying again", "job", p.ID, "err", err)
		if run.Pause(p.Context(), run.Retry) != nil {
			return
		}
	}
}

// formed reports the leases of a gang once. Measured returns the paths between all members. measuring is held.
func (p *Plans) formed(ev run.Event, measured func(old []cluster.Path) []cluster.Path) error {
	old, err := p.pathsNow(p.Context())
	if err != nil {
		return err
	}
	paths := measured(old)
	put, err := mesh.Records.Encode(p.ID, paths)
	if err != nil {
		return err
	}
	sum := record.SpanOf(paths)
	p.setPaths(&paths) // before the new members are published; the other paths are unchanged
	ev.Puts = append(slices.Clone(ev.Puts), put)
	ev.Amend = run.Amend(func(j *record.Job) { j.Network = &sum })
	if _, err := p.Ask(p.Context(), ev); err != nil {
		p.setPaths(nil) // the journal has it
		return err
	}
	return nil
}

// Reader reads the paths of clusters from the journal.
type Reader struct{ store store.Store }

// NewReader returns a reader.
func NewReader(st store.Store) Reader { return Reader{st} }

// Paths returns the measured paths between the ranks of a cluster, by rank, and none for another job.
func (r Reader) Paths(ctx context.Context, job string) ([]cluster.Path, error) {
	return mesh.Paths(ctx, r.store, job)
}
