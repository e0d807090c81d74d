// Package command commands a job with guardians. It finds them and hands the job to them, and sends them heartbeats
// with the standing that the next supervisor needs. In the end it dismisses them.
//
//	Engage ──▸ Follow: heartbeats ──▸ the guardians have the files: the job continues without this peer
//	                       └── superseded: the job's machine loses the command, see package takeover
package command

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/voice"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
)

// Config is the surroundings of the commands of all jobs. All of it is required.
type Config struct {
	Host      *p2p.Host
	Genesis   market.Genesis
	Voices    *voice.Config
	Search    Search
	Files     Files
	Blobs     work.Blobs
	Escrows   Escrows
	LostAfter time.Duration // silence after which a peer counts as lost
	Tasks     leases.Tasks
	Log       *slog.Logger
}

// Search finds guardians for jobs.
type Search interface {
	// Guardians polls known peers for guardians of the job, and chooses among the willing ones. Peers that agreed
	// before and then refused come last.
	Guardians(ctx context.Context, j record.Job, unwilling []sign.Key) ([]guardian.Member, error)
}

// Files has the files of this peer.
type Files interface {
	// Grant lets a peer read a blob here.
	Grant(to peer.ID, c cid.Cid)
}

// Escrows holds the escrows of jobs.
type Escrows interface {
	// Escrows returns the escrows of a job, the first one first.
	Escrows(job string) []record.Escrow
}

// Parts are the rooms of a job that its command ends.
type Parts interface {
	// Ended is called when the job has ended and nothing remains to be done for it.
	Ended()
}

// Command is the command of one job with guardians.
type Command struct {
	*run.Job
	cfg       *Config
	parts     Parts
	unwilling []sign.Key   // agreed to guard the job, and then did not
	handing   atomic.Int32 // how far its guardians are with its files

	mu       sync.Mutex
	voice    *voice.Guarded
	engaging context.CancelFunc // ends the search for guardians; nil if no search runs
	beating  context.CancelFunc // ends the heartbeats; nil if none are sent
}

// New returns the command of a job that has a voice of its own.
func New(cfg *Config, j *run.Job, v *voice.Guarded, p Parts) *Command {
	return &Command{Job: j, cfg: cfg, parts: p, voice: v}
}

// Voice returns the identity that buys the job's leases; nil without a command.
func (d *Command) Voice() *voice.Guarded {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.voice
}

// panel returns the guardians, or nil before they are found.
func (d *Command) panel() *guardian.Panel { return d.Voice().Guardians() }
