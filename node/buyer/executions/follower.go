package executions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
)

// Observer is notified of a program's progress.
type Observer interface {
	// Seen processes a report of the provider.
	Seen(ex *nodepb.Execution)
	// Reached reports a stage, with a detail for users. Each stage is reported once, but for StageUnhealthy.
	Reached(stage jobs.Stage, detail string)
}

// Follower follows one run of a rank's program.
//
//	pulling ──▶ running ──▶ healthy ──▶ ended
//	   └ timeouts.pull ┘        │
//	   └────── timeouts.start ──┘
type Follower struct {
	client   *Client
	x        Execution
	lease    Lease
	log      *ranklog.Log
	base     int64
	observer Observer

	mu      sync.Mutex
	pulled  bool // its program and inputs were fetched
	up      bool // it runs, and is healthy where it has a check
	unfit   bool // its check failed last
	pulling bool // the size of its image is known
}

// Follower returns a follower of an execution, whose output it adds to the rank's log. base is where the execution's
// output begins in it.
func (c *Client) Follower(x Execution, l Lease, log *ranklog.Log, base int64, o Observer) *Follower {
	return &Follower{client: c, x: x, lease: l, log: log, base: base, observer: o}
}

// Watch is Follow until the lease is lost.
func (f *Follower) Watch(ctx context.Context) (*nodepb.Execution, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.lease.Context(), cancel)()
	return f.Follow(ctx)
}

// Follow reads the execution's states and log until it has ended, and returns it.
func (f *Follower) Follow(ctx context.Context) (*nodepb.Execution, error) {
	out, errs, err := f.log.Offsets(f.base)
	if err != nil {
		return nil, err
	}
	cfg := f.client.cfg
	items, err := protocol.Watch.Open(ctx, cfg.Host, cfg.Tag, f.x.Peer, &nodepb.WatchRequest{
		Lease: f.x.Lease[:], Seq: f.x.Seq, StdoutOffset: out, StderrOffset: errs,
	})
	if err != nil {
		return nil, err
	}
	defer items.Close()
	var last *nodepb.Execution
	for {
		it, err := items.Next()
		if errors.Is(err, io.EOF) && last != nil && last.State.Ended() {
			return last, nil
		}
		if err != nil {
			return nil, err
		}
		switch v := it.Item.(type) {
		case *nodepb.WatchItem_Execution:
			last = v.Execution
			if last == nil {
				return nil, fmt.Errorf("watching: %w", stream.ErrBadReply)
			}
			f.note(last)
		case *nodepb.WatchItem_Log:
			at, id := &out, byte(ranklog.StreamStdout)
			if v.Log.GetStderr() {
				at, id = &errs, ranklog.StreamStderr
			}
			if v.Log.GetOffset() != *at {
				return nil, fmt.Errorf("watching: the log jumps from byte %d to %d: %w",
					*at, v.Log.GetOffset(), stream.ErrBadReply)
			}
			if err := f.log.Append(id, v.Log.Data); err != nil && !errors.Is(err, ranklog.ErrFull) {
				return nil, err
			}
			*at += uint64(len(v.Log.Data))
		}
	}
}

// note takes the provider's report of the execution, and reports progress to the job's state machine.
func (f *Follower) note(ex *nodepb.Execution) {
	f.observer.Seen(ex)
	running := ex.State == nodepb.ExecState_EXEC_STATE_RUNNING
	f.mu.Lock()
	first := !f.pulled && (running || ex.State == nodepb.ExecState_EXEC_STATE_EXITED)
	if running || ex.State.Ended() {
		f.pulled = true
	}
	fit := ex.Health == nodepb.Health_HEALTH_UNSPECIFIED || ex.Health == nodepb.Health_HEALTH_HEALTHY
	up := !f.up && running && fit
	pulling := !f.pulling && ex.State == nodepb.ExecState_EXEC_STATE_PULLING && ex.PullTotal > 0
	f.pulling = f.pulling || pulling
	unhealthy := running && ex.Health == nodepb.Health_HEALTH_UNHEALTHY
	fell := unhealthy && !f.unfit
	f.unfit = unhealthy
	if ex.State.Ended() || running && fit {
		f.up = true
	}
	f.mu.Unlock()
	for _, seen := range []struct {
		now    bool
		stage  jobs.Stage
		detail string
	}{
		{pulling, jobs.StagePulling, ""}, {first, jobs.StagePulled, ""}, {up, jobs.StageHealthy, ""},
		{fell, jobs.StageUnhealthy, strings.TrimSuffix("unhealthy: "+record.Clean(ex.HealthMessage), ": ")},
	} {
		if seen.now {
			f.observer.Reached(seen.stage, seen.detail)
		}
	}
}
