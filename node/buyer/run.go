package buyer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/stream"
)

// execution is one run of a rank's program under a lease, as the buyer follows it.
//
//	pulling ──▶ running ──▶ healthy ──▶ ended
//	   └ timeouts.pull ┘        │
//	   └────── timeouts.start ──┘
type execution struct {
	b    *Buyer
	l    *leases.Lease
	seq  uint64
	log  *ranklog.Log
	base int64 // of its log in the rank's
	seen func(*nodepb.Execution)
	// saw reports progress to the job's state machine, which decides what follows.
	saw func(stage jobs.Stage, detail string)

	mu     sync.Mutex
	pulled bool // its program and inputs are there
	up     bool // it runs, and is healthy where it has a check
	unfit  bool // its check failed last
	// pulling: it is known how much there is to fetch.
	pulling bool
}

// watch follows the execution and returns it when it has ended.
func (e *execution) watch(ctx context.Context) (*nodepb.Execution, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(e.l.Context(), cancel) // the lease is lost
	defer stop()
	return e.follow(ctx)
}

// follow takes in the execution's states and log until it has ended.
func (e *execution) follow(ctx context.Context) (*nodepb.Execution, error) {
	out, errs, err := e.log.Offsets(e.base)
	if err != nil {
		return nil, err
	}
	b := e.b
	items, err := protocol.Watch.Open(ctx, b.cfg.Host, b.tag, e.l.Peer, &nodepb.WatchRequest{Lease: e.l.First[:], Seq: e.seq, StdoutOffset: out, StderrOffset: errs})
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
			e.note(last)
		case *nodepb.WatchItem_Log:
			at, id := &out, byte(StreamStdout)
			if v.Log.GetStderr() {
				at, id = &errs, StreamStderr
			}
			if v.Log.GetOffset() != *at {
				return nil, fmt.Errorf("watching: the log jumps from byte %d to %d: %w", *at, v.Log.GetOffset(), stream.ErrBadReply)
			}
			if err := e.log.Append(id, v.Log.Data); err != nil && !errors.Is(err, ranklog.ErrFull) {
				return nil, err
			}
			*at += uint64(len(v.Log.Data))
		}
	}
}

// note takes the provider's report of the execution, and reports progress to the job's state machine.
func (e *execution) note(ex *nodepb.Execution) {
	e.seen(ex)
	running := ex.State == nodepb.ExecState_EXEC_STATE_RUNNING
	e.mu.Lock()
	first := !e.pulled && (running || ex.State == nodepb.ExecState_EXEC_STATE_EXITED)
	if running || ex.State.Ended() {
		e.pulled = true
	}
	fit := ex.Health == nodepb.Health_HEALTH_UNSPECIFIED || ex.Health == nodepb.Health_HEALTH_HEALTHY
	up := !e.up && running && fit
	pulling := !e.pulling && ex.State == nodepb.ExecState_EXEC_STATE_PULLING && ex.PullTotal > 0
	e.pulling = e.pulling || pulling
	unhealthy := running && ex.Health == nodepb.Health_HEALTH_UNHEALTHY
	fell := unhealthy && !e.unfit
	e.unfit = unhealthy
	if ex.State.Ended() || running && fit {
		e.up = true
	}
	e.mu.Unlock()
	for _, seen := range []struct {
		now    bool
		stage  jobs.Stage
		detail string
	}{
		{pulling, jobs.StagePulling, ""}, {first, jobs.StagePulled, ""}, {up, jobs.StageHealthy, ""},
		{fell, jobs.StageUnhealthy, strings.TrimSuffix("unhealthy: "+clip(ex.HealthMessage), ": ")},
	} {
		if seen.now {
			e.saw(seen.stage, seen.detail)
		}
	}
}

// liveOf is an execution as its user sees it while it runs.
func liveOf(ex *nodepb.Execution) Live {
	l := Live{Message: clip(ex.Message), Pulled: ex.PulledBytes, PullTotal: ex.PullTotal, Ways: mesh.WaysOf(ex)}
	switch {
	case ex.State.Ended():
		l.Message, l.Ways = "", nil
	case ex.Paused:
		l.Phase = "paused"
	case ex.State == nodepb.ExecState_EXEC_STATE_PULLING:
		l.Phase = "pulling"
	case ex.State == nodepb.ExecState_EXEC_STATE_RUNNING:
		l.Phase = "running"
	}
	switch ex.Health {
	case nodepb.Health_HEALTH_STARTING:
		l.Health = "starting"
	case nodepb.Health_HEALTH_HEALTHY:
		l.Health = "healthy"
	case nodepb.Health_HEALTH_UNHEALTHY:
		l.Health = "unhealthy"
	}
	if l.Message == "" && l.Health == "unhealthy" {
		l.Message = clip(ex.HealthMessage)
	}
	for _, d := range ex.Devices {
		if len(l.Devices) < maxDevices {
			l.Devices = append(l.Devices, clip(d))
		}
	}
	if ms := ex.KeepUntilMillis; ms > 0 && ms < maxMillis {
		l.KeepUntil = time.UnixMilli(int64(ms))
	}
	return l
}

const (
	maxDevices = 256
	maxMillis  = 1 << 45 // a time that JSON can have
)

// pbHealth is a job's health check on the wire.
func pbHealth(h *job.Health) *nodepb.HealthCheck {
	if h == nil {
		return nil
	}
	out := &nodepb.HealthCheck{
		IntervalMillis: uint64(time.Duration(h.Interval).Milliseconds()), TimeoutMillis: uint64(time.Duration(h.Timeout).Milliseconds()),
		Retries: h.Retries, StartMillis: uint64(time.Duration(h.StartPeriod).Milliseconds()),
	}
	switch {
	case h.HTTP != nil:
		out.Check = &nodepb.HealthCheck_Http{Http: &nodepb.HTTPGet{Port: uint32(h.HTTP.Port), Path: h.HTTP.Path}}
	case h.TCP != 0:
		out.Check = &nodepb.HealthCheck_TcpPort{TcpPort: uint32(h.TCP)}
	default:
		out.Check = &nodepb.HealthCheck_Command{Command: &nodepb.Command{Args: h.Command}}
	}
	return out
}

// A provider keeps an execution's outputs for a time after its end (provide.retain). A buyer that was away, also for
// longer than its lease, looks for that before it takes the rank for lost and has the work done again.

// status asks the provider how the execution stands, for as long as a silent provider is waited for.
func (e *execution) status(ctx context.Context) (*nodepb.Execution, error) {
	b, l := e.b, e.l
	ctx, cancel := context.WithTimeout(ctx, b.cfg.LostAfter)
	defer cancel()
	for {
		b.cfg.Host.Forgive(l.Peer)
		reply, err := protocol.Exec.Call(ctx, b.cfg.Host, b.tag, l.Peer, &nodepb.ExecRequest{Lease: l.First[:], Seq: e.seq,
			Op: &nodepb.ExecRequest_Status_{Status: &nodepb.ExecRequest_Status{}}})
		if err == nil || final(err) != nil {
			return reply.GetExecution(), err
		}
		if pause(ctx, redial) != nil {
			return nil, err
		}
	}
}
