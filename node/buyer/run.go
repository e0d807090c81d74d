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
	b       *Buyer
	l       *bought
	seq     uint64
	log     *ranklog.Log
	base    int64     // of its log in the rank's
	begun   time.Time // when the provider was asked for it first
	limits  job.Timeouts
	outputs []job.Output // that the job asks for
	cure    bool         // one that is unhealthy is stopped
	adopted bool         // an earlier process started it
	started func()
	seen    func(*nodepb.Execution)
	// saw reports progress to the job's state machine, which decides what follows; nil: the supervisor decides.
	saw func(stage jobs.Stage, detail string)

	mu     sync.Mutex
	pulled bool // its program and inputs are there
	up     bool // it runs, and is healthy where it has a check
	sick   string
	asked  bool // it was asked to stop, for it is sick
	unfit  bool // its check failed last
	// pulling: it is known how much there is to fetch.
	pulling bool
}

// errLate says which of the job's limits on time an execution broke.
type errLate struct{ text string }

func (e *errLate) Error() string { return e.text }

// run runs w to its end. It returns a lost result when the provider is gone for longer than the peer waits, when the money of
// the lease stopped, or when a phase takes longer than the job says.
func (e *execution) run(ctx context.Context, w *nodepb.Workload) (result, error) {
	b, l := e.b, e.l
	b.grantInputs(l.peer, w)
	req := &nodepb.ExecRequest{Lease: l.first[:], Seq: e.seq, Op: &nodepb.ExecRequest_Start_{Start: &nodepb.ExecRequest_Start{Workload: w}}}
	parent := ctx
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	defer e.clock(cancel)()
	var since time.Time // when the provider was first found silent
	for {
		err := b.start(ctx, l, req)
		if err == nil {
			since = time.Time{}
			var ex *nodepb.Execution
			if ex, err = e.watch(ctx); err == nil {
				return e.ended(ctx, ex)
			}
		}
		no := final(err)
		var bad *stream.Malformed
		var late *errLate
		switch {
		case parent.Err() != nil:
			return result{}, parent.Err()
		case errors.As(context.Cause(ctx), &late):
			return result{lost: late.text, late: true}, nil
		case l.lostReason() != "":
			return e.reclaim(parent)
		case errors.As(err, &bad):
			return result{lost: "the provider called the request malformed: " + bad.Reason}, nil
		case no != nil:
			return result{lost: "the provider refused to run it: " + no.Reason}, nil
		}
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		if now.Sub(since) > b.cfg.LostAfter {
			return result{lost: fmt.Sprintf("the provider has not answered for %v: %v", b.cfg.LostAfter, err)}, nil
		}
		select {
		case <-ctx.Done():
		case <-l.lost:
			return e.reclaim(parent)
		case <-time.After(redial):
		}
	}
}

// clock ends the execution when a phase takes longer than the job says. The caller calls back when it has ended.
func (e *execution) clock(cancel context.CancelCauseFunc) (stop func()) {
	var timers []*time.Timer
	limit := func(most time.Duration, over func() bool, format string) {
		if most <= 0 {
			return
		}
		timers = append(timers, time.AfterFunc(time.Until(e.begun.Add(most)), func() {
			e.mu.Lock()
			late := !over()
			e.mu.Unlock()
			if late {
				cancel(&errLate{fmt.Sprintf(format, most)})
			}
		}))
	}
	limit(e.limits.Pull, func() bool { return e.pulled }, "the provider did not fetch program and inputs within timeouts.pull of %v")
	limit(e.limits.Start, func() bool { return e.up }, "the program did not run, healthy, within timeouts.start of %v")
	return func() {
		for _, t := range timers {
			t.Stop()
		}
	}
}

// watch follows the execution and returns it when it has ended.
func (e *execution) watch(ctx context.Context) (*nodepb.Execution, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(e.l.ctx, cancel) // the lease is lost
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
	items, err := protocol.Watch.Open(ctx, b.cfg.Host, b.tag, e.l.peer, &nodepb.WatchRequest{Lease: e.l.first[:], Seq: e.seq, StdoutOffset: out, StderrOffset: errs})
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
			e.note(ctx, last)
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

// note takes in what the provider says of the execution, and has an unhealthy one stopped where the job says so.
func (e *execution) note(ctx context.Context, ex *nodepb.Execution) {
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
	sick := unhealthy && e.cure && !e.asked && e.saw == nil
	why := strings.TrimSuffix("unhealthy: "+clip(ex.HealthMessage), ": ")
	if sick {
		e.sick, e.asked = why, true
	}
	e.mu.Unlock()
	if e.saw != nil {
		if pulling {
			e.saw(jobs.StagePulling, "")
		}
		e.report(first, up, fell, why)
		return
	}
	if first {
		e.started()
	}
	if !sick {
		return
	}
	e.b.wg.Go(func() {
		grace := e.limits.Grace()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+stopSlack)
		defer cancel()
		if _, err := e.b.stopExecution(ctx, e.l, e.seq, grace); err != nil {
			e.b.cfg.Log.Debug("stopping an unhealthy program", "lease", e.l.id, "err", err)
			e.mu.Lock()
			e.asked = false // its next word is a reason to try again
			e.mu.Unlock()
		}
	})
}

// report reports progress to the job's state machine.
func (e *execution) report(pulled, healthy, unhealthy bool, why string) {
	if pulled {
		e.saw(jobs.StagePulled, "")
	}
	if healthy {
		e.saw(jobs.StageHealthy, "")
	}
	if unhealthy {
		e.saw(jobs.StageUnhealthy, why)
	}
}

// ended is how an execution that has ended went.
func (e *execution) ended(ctx context.Context, ex *nodepb.Execution) (result, error) {
	e.mu.Lock()
	asked, sick := e.asked, e.sick
	e.mu.Unlock()
	res, err := e.b.gather(ctx, e.l, ex, e.outputs, asked)
	if err == nil && sick != "" && res.lost == "" {
		// However it ended, it ended because it was sick.
		res.reason, res.message = ReasonUnhealthy, sick
	}
	return res, err
}

// ReasonUnhealthy is why a program was stopped whose health check failed.
const ReasonUnhealthy = "unhealthy"

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
