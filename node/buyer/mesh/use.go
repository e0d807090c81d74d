package mesh

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/node/cluster/dashboard"
	"github.com/starling-network/starling/p2p/stream"
)

// A cluster that serves is idle while all of these hold, which its buyer sees without a request to its programs:
//
//	no stream into it is open through this peer      exec, port-forward, cp
//	Ray reports that no job of it runs or waits      for a cluster of Ray; no answer counts as busy
//	its members computed very little                 in the last interval, less than idleMilliCPU each on average
//
// It cannot detect a user who only reads. Autostop must be longer than such pauses.

// idleMilliCPU bounds the processor time of Ray's own processes in an idle cluster, in thousandths of a processor.
const idleMilliCPU = 300

// Use is the use of a cluster at one time.
type Use struct {
	Streams  bool   // one is open
	Jobs     bool   // one runs or waits, or that is unknown
	MilliCPU uint64 // of all members together
	Members  uint64
}

// Idle reports whether the cluster is unused.
func (u Use) Idle() bool { return !u.Streams && !u.Jobs && u.MilliCPU < idleMilliCPU*max(u.Members, 1) }

// IdleSince returns since when a cluster is idle that was so since before. Zero means that it is in use.
func IdleSince(before, now time.Time, seen Use) time.Time {
	switch {
	case !seen.Idle():
		return time.Time{}
	case before.IsZero() || before.After(now):
		return now
	}
	return before
}

// RayBusy reports whether Ray's dashboard lists a running or waiting job, or does not answer.
func RayBusy(ctx context.Context, token string, dial func(context.Context) (*stream.Conn, error)) bool {
	busy, err := dashboard.Busy(ctx, dashboard.Config{Token: token, Dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return pipe{conn}, nil
	}})
	return err != nil || busy
}

// Counted is a stream that counts as open until it is closed or aborted.
type Counted struct {
	*stream.Conn
	open *atomic.Int64
	once sync.Once
}

// Count counts a stream as open.
func Count(c *stream.Conn, open *atomic.Int64) *Counted {
	open.Add(1)
	return &Counted{Conn: c, open: open}
}

func (c *Counted) over() { c.once.Do(func() { c.open.Add(-1) }) }

// Close closes the stream.
func (c *Counted) Close() error {
	c.over()
	return c.Conn.Close()
}

// Abort aborts the stream.
func (c *Counted) Abort() {
	c.over()
	c.Conn.Abort()
}

// pipe is a stream as an HTTP client needs it. Its deadlines are those of its owner, which closes it.
type pipe struct{ *stream.Conn }

type nowhere struct{}

func (nowhere) Network() string { return "stream" }
func (nowhere) String() string  { return "cluster" }

func (pipe) LocalAddr() net.Addr              { return nowhere{} }
func (pipe) RemoteAddr() net.Addr             { return nowhere{} }
func (pipe) SetDeadline(time.Time) error      { return nil }
func (pipe) SetReadDeadline(time.Time) error  { return nil }
func (pipe) SetWriteDeadline(time.Time) error { return nil }
