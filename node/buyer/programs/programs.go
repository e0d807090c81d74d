// Package programs controls the programs of a job's ranks. It requests their start and stop from their providers,
// follows them until they have ended, and fetches their outputs.
//
// The job's machine decides each of these steps. Programs reports their results.
package programs

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/probe"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p"
)

// Config is the surroundings of the programs of all jobs. All of it is required.
type Config struct {
	Host       *p2p.Host
	Genesis    market.Genesis
	Clock      probe.Clock
	Executions *executions.Client
	Secrets    Secrets
	Files      Files
	Reputation Reputation
	Packs      Packs
	MaxOutput  int64 // bytes of one output
	Tasks      leases.Tasks
	Log        *slog.Logger

	keeping sync.Mutex // held while a pack is journalled or removed: ranks may have equal ones
}

// Secrets seals the values of jobs.
type Secrets interface {
	// SealFor seals a job's values to the provider of a lease.
	SealFor(ctx context.Context, j record.Job, to sign.Key, lease market.LeaseID) ([]byte, error)
}

// Files has the files of this peer.
type Files interface {
	// Grant lets a peer read a blob here.
	Grant(to peer.ID, c cid.Cid)
	// Drop removes blobs, unless this peer needs them.
	Drop(all ...cid.Cid)
}

// Reputation has the reputation of other peers.
type Reputation interface {
	probe.Facts
	// Failed reports that the provider of a lease broke it, and the loss. The report may repeat.
	Failed(c market.LeaseCore, lost market.Amount)
}

// Plans are the plans of the job's cluster.
type Plans interface {
	// For returns the plan in force, as sent to one rank.
	For(ctx context.Context, rank int) (*nodepb.ClusterPlan, error)
	// Attached keeps a member's provider at the plan in force until the caller calls back.
	Attached(ctx context.Context, rank int) (end func())
	// Heard records the plan in force in a rank's execution.
	Heard(rank int, ex *nodepb.Execution)
}

// Observer observes the programs of a job.
type Observer interface {
	// Seen processes the state of a rank's execution.
	Seen(rank int, ex *nodepb.Execution)
}

// Programs are the executions of a job that this process follows.
type Programs struct {
	*run.Job
	cfg      *Config
	plans    Plans
	observer Observer

	mu        sync.Mutex   // taken before the job's
	following []*following // by rank; nil: nothing is followed
	returned  map[int]bool // ranks that were taken up since this process began
}

// New returns the programs of a job.
func New(cfg *Config, j *run.Job, p Plans, o Observer) *Programs {
	return &Programs{Job: j, cfg: cfg, plans: p, observer: o, following: make([]*following, len(j.Peek().Ranks)),
		returned: map[int]bool{}}
}

// following is an execution that this process follows.
type following struct {
	exec   jobs.Exec
	ctx    context.Context // ends when the job's machine no longer needs it
	cancel context.CancelFunc
	last   *nodepb.Execution // as it ended; under the mu of Programs
	packs  packs
}

// Changed applies a state of the job's machine: it ends the executions that the job no longer has.
func (x *Programs) Changed(st jobs.State) {
	n := len(st.Ranks)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.growLocked(n)
	for i, f := range x.following {
		if f == nil {
			continue
		}
		if i < n {
			r := &st.Ranks[i]
			if r.State == jobs.RankRunning && f.exec.Lease == r.Lease && f.exec.Seq == r.Seq {
				continue
			}
		}
		f.cancel()
		x.following[i] = nil
	}
	x.following = slices.Clip(x.following[:n])
}

func (x *Programs) growLocked(n int) {
	for len(x.following) < n {
		x.following = append(x.following, nil)
	}
}

// Leave stops following programs: another peer supervises the job, or this one restarts.
func (x *Programs) Leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Revoke()
	clear(x.following)
}

// followed returns an execution as it is followed from now on, and reports whether it was before.
func (x *Programs) followed(e jobs.Exec) (f *following, already bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.growLocked(int(e.Rank) + 1)
	if f := x.following[e.Rank]; f != nil {
		if f.exec == e {
			return f, true
		}
		f.cancel()
	}
	f = &following{exec: e}
	f.ctx, f.cancel = context.WithCancel(x.Commanded())
	x.following[e.Rank] = f
	return f, false
}

// known returns an execution if it is followed, or nil.
func (x *Programs) known(e jobs.Exec) *following {
	x.mu.Lock()
	defer x.mu.Unlock()
	if int(e.Rank) >= len(x.following) {
		return nil
	}
	if f := x.following[e.Rank]; f != nil && f.exec == e {
		return f
	}
	return nil
}
