package buyer

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/cluster/dashboard"
	"github.com/starling-network/starling/p2p/stream"
)

// A cluster that serves is idle while all of these hold, which this peer can see without asking anybody inside:
//
//	nobody has a stream into it through this peer    exec, port-forward, cp
//	Ray says that no job of it runs or waits         of a cluster of Ray; one that does not answer is not known to be idle
//	its members computed next to nothing             by the receipts of the last interval: less than idleMilliCPU each, on average
//
// What it does not see: somebody who only thinks. Autostop is for that long.

// errIdle says that a cluster was idle for as long as its user said.
var errIdle = errors.New("idle")

// idleMilliCPU is what Ray's own processes take of a processor at most while nobody wants anything of them, thousandths.
const idleMilliCPU = 300

// busy is what is seen of a cluster at one time.
type busy struct {
	streams bool
	jobs    bool   // one runs or waits, or nobody can tell
	milli   uint64 // of a processor, of all members together
	members uint64
}

func (b busy) idle() bool { return !b.streams && !b.jobs && b.milli < idleMilliCPU*max(b.members, 1) }

// idleSince is since when a cluster is idle that was so since before; zero: it is not.
func idleSince(before, now time.Time, seen busy) time.Time {
	switch {
	case !seen.idle():
		return time.Time{}
	case before.IsZero() || before.After(now):
		return now
	}
	return before
}

// watchIdle ends the job's work when it was idle for so long. A restart of this peer begins to count again.
func (s *supervisor) watchIdle(ctx context.Context, cancel context.CancelCauseFunc, most time.Duration) {
	every := min(max(most/6, time.Second), time.Minute)
	if err := s.noteIdle(ctx, time.Time{}); err != nil && ctx.Err() == nil {
		s.b.cfg.Log.Warn("a cluster's idle time is not journalled", "job", s.trace.job, "err", err)
	}
	for pause(ctx, every) == nil {
		j := s.snapshot()
		if j.Cluster.Ready.IsZero() || j.Paused { // a cluster that comes up is in use, and one that was frozen does what it was told
			_ = s.noteIdle(ctx, time.Time{})
			continue
		}
		now := time.Now()
		since := idleSince(j.Cluster.Idle, now, s.use(ctx))
		if err := s.noteIdle(ctx, since); err != nil {
			continue
		}
		if !since.IsZero() && now.Sub(since) >= most {
			cancel(errIdle)
			return
		}
	}
}

func (s *supervisor) noteIdle(ctx context.Context, since time.Time) error {
	if s.snapshot().Cluster.Idle.Equal(since) {
		return nil
	}
	return s.save(ctx, func(j *Job) { j.Cluster.Idle = since })
}

// use is what is seen of the cluster now.
func (s *supervisor) use(ctx context.Context) busy {
	j := s.snapshot()
	seen := busy{streams: s.streams.Load() > 0, members: uint64(len(j.Ranks))}
	s.mu.Lock()
	var leases []*bought
	for _, l := range s.leases {
		if l != nil {
			leases = append(leases, l)
		}
	}
	s.mu.Unlock()
	for _, l := range leases {
		seen.milli += l.milliCPU()
	}
	if !seen.idle() || j.Spec.Cluster.Engine != "ray" {
		return seen
	}
	seen.jobs = !s.rayIdle(ctx)
	return seen
}

// milliCPU is how much of a processor the last interval of a lease used, thousandths.
func (l *bought) milliCPU() uint64 {
	last := l.line.end()
	last.mu.Lock()
	r := last.payer.Last()
	last.mu.Unlock()
	millis := uint64(r.To-r.From) * l.b.cfg.Genesis.SlotMillis
	if r.Seq == 0 || millis == 0 {
		return 0
	}
	return r.CPUMillis * 1000 / millis
}

// rayIdle asks Ray itself whether anything is to do.
func (s *supervisor) rayIdle(ctx context.Context) bool {
	ctx, done := context.WithTimeout(ctx, tellTime)
	defer done()
	works, err := dashboard.Busy(ctx, dashboard.Config{Token: clusterToken(s.b.secret, s.trace.job), Dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := s.b.forward(ctx, s.trace.job, 0, cluster.PortRayDashboard)
		if err != nil {
			return nil, err
		}
		return pipe{conn}, nil
	}})
	return err == nil && !works
}

// counted is a stream into a job that somebody has open.
type counted struct {
	*stream.Conn
	open *atomic.Int64
	once sync.Once
}

func newCounted(c *stream.Conn, open *atomic.Int64) *counted {
	open.Add(1)
	return &counted{Conn: c, open: open}
}

func (c *counted) over() { c.once.Do(func() { c.open.Add(-1) }) }

// Close is the stream's.
func (c *counted) Close() error {
	c.over()
	return c.Conn.Close()
}

// Abort is the stream's.
func (c *counted) Abort() {
	c.over()
	c.Conn.Abort()
}

// pipe is a stream as an HTTP client wants it. Its deadlines are those of whoever closes it.
type pipe struct{ *stream.Conn }

type nowhere struct{}

func (nowhere) Network() string { return "stream" }
func (nowhere) String() string  { return "cluster" }

func (pipe) LocalAddr() net.Addr              { return nowhere{} }
func (pipe) RemoteAddr() net.Addr             { return nowhere{} }
func (pipe) SetDeadline(time.Time) error      { return nil }
func (pipe) SetReadDeadline(time.Time) error  { return nil }
func (pipe) SetWriteDeadline(time.Time) error { return nil }
