package buyer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
)

// Attach runs a program beside that of a rank, and returns the stream to it, which speaks the frames of node/live.
func (b *Buyer) Attach(ctx context.Context, id string, rank int, p Program) (executions.Conn, error) {
	s, x, _, err := b.reach(id, rank)
	if err != nil {
		return nil, err
	}
	conn, err := b.executions.Attach(ctx, x, p)
	return s.opened(conn, err)
}

// Forward connects to a TCP port of a rank's program. The stream carries its bytes as they are.
func (b *Buyer) Forward(ctx context.Context, id string, rank int, port uint16) (executions.Conn, error) {
	s, x, _, err := b.reach(id, rank)
	if err != nil {
		return nil, err
	}
	conn, err := b.executions.Forward(ctx, x, port)
	return s.opened(conn, err)
}

// opened keeps a stream that is not there from being an interface that is, and counts it for as long as it is open.
func (s *supervisor) opened(c *stream.Conn, err error) (executions.Conn, error) {
	if err != nil {
		return nil, err
	}
	return mesh.Count(c, &s.streams), nil
}

// CopyOut writes a tar archive of a file or directory of a rank's program to w, see executions.Client.
func (b *Buyer) CopyOut(ctx context.Context, id string, rank int, file string, w io.Writer) error {
	_, x, l, err := b.reach(id, rank)
	if err != nil {
		return err
	}
	return b.executions.CopyOut(ctx, x, l, file, w)
}

// CopyIn unpacks a tar archive beneath a path of a rank's program, see executions.Client. It closes r.
func (b *Buyer) CopyIn(ctx context.Context, id string, rank int, file string, directory bool, r io.ReadCloser) error {
	_, x, _, err := b.reach(id, rank)
	if err != nil {
		r.Close()
		return err
	}
	return b.executions.CopyIn(ctx, x, file, directory, r)
}

// reach returns a rank's running program, with its job and lease.
func (b *Buyer) reach(id string, rank int) (*supervisor, executions.Execution, *leases.Lease, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, executions.Execution{}, nil, err
	}
	l, seq, err := s.running(rank)
	if err != nil {
		return nil, executions.Execution{}, nil, err
	}
	return s, on(l, seq), l, nil
}

// running is the lease and execution of a rank that runs.
func (s *supervisor) running(rank int) (*leases.Lease, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.job
	if rank < 0 || rank >= len(j.Ranks) {
		return nil, 0, fmt.Errorf("%w: job %s has ranks 0 to %d, not %d", ErrNoJob, j.ID, len(j.Ranks)-1, rank)
	}
	r, l := j.Ranks[rank], s.leases[rank]
	switch {
	case j.State.Ended() || j.State == Settling:
		return nil, 0, fmt.Errorf("%w: the job has %s; `starling get` fetches its outputs, `starling logs` its log",
			ErrNotRunning, j.State.Past())
	case r.State != RankRunning || l == nil:
		return nil, 0, fmt.Errorf("%w: rank %d of the job is %s", ErrNotRunning, rank, r.State)
	}
	return l, r.Seq, nil
}

// Pause freezes the programs of all ranks until Resume: of those that run, and of those that begin meanwhile. It
// returns the job when every provider has done so. Units stay held and are paid for, and timeouts.run goes on.
func (b *Buyer) Pause(ctx context.Context, id string) (Job, error) {
	s, err := b.get(id)
	if err != nil {
		return Job{}, err
	}
	return s.pauses.set(ctx, true)
}

// Resume lets the programs of a paused job go on.
func (b *Buyer) Resume(ctx context.Context, id string) (Job, error) {
	s, err := b.get(id)
	if err != nil {
		return Job{}, err
	}
	return s.pauses.set(ctx, false)
}

// pauses freezes the programs of a job and lets them go on, one change at a time.
type pauses struct {
	s  *supervisor
	mu sync.Mutex // taken before the supervisor's
}

// set is Pause or Resume.
func (p *pauses) set(ctx context.Context, paused bool) (Job, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.s.snapshot()
	if j.State != Running {
		return j, fmt.Errorf("%w: the job is %s", ErrNotRunning, j.State)
	}
	if err := p.s.driver.pause(ctx, paused); err != nil {
		return j, err
	}
	err := p.freeze(ctx, paused)
	// A provider that cannot do it at all never will: the job is as it was. One that is silent hears it when it is
	// back.
	var no *stream.Refused
	if errors.As(err, &no) {
		back := context.WithoutCancel(ctx)
		if undone := p.s.driver.pause(back, !paused); undone == nil {
			_ = p.freeze(back, !paused)
		}
	}
	return p.s.snapshot(), err
}

// pause notes that the programs are to be paused, or let go on. The caller, or bring, requests it of the providers.
func (d *driver) pause(ctx context.Context, paused bool) error {
	err := d.request(ctx, func(req jobs.Req) error {
		_, err := d.ask(context.WithoutCancel(ctx), event{ev: jobs.PauseRequested{Req: req, Pause: paused}})
		return err
	})
	if errors.Is(err, jobs.ErrNotRunning) {
		err = fmt.Errorf("%w: the job is %s", ErrNotRunning, d.s.snapshot().State)
	}
	return err
}

// freeze requests it of all providers.
func (p *pauses) freeze(ctx context.Context, paused bool) error {
	s := p.s
	n := len(s.snapshot().Ranks)
	errs := make(chan error, n)
	for i := range n {
		go func() {
			l, seq, err := s.running(i)
			if err != nil { // it has not begun, or is done
				errs <- nil
				return
			}
			err = s.b.executions.Pause(ctx, on(l, seq), paused)
			var no *stream.Refused
			if errors.As(err, &no) && (no.Code == stream.CodeBusy || no.Code == "execution") {
				err = nil // it is told as soon as it runs; or it has ended
			}
			errs <- err
		}()
	}
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// bring has an execution that is not as the job is paused, or let go on: it began after the user said so, or its
// provider or this peer was away then.
func (p *pauses) bring(i int, ex *nodepb.Execution) {
	s := p.s
	if ex.State != nodepb.ExecState_EXEC_STATE_RUNNING || ex.Paused == s.snapshot().Paused {
		return
	}
	s.b.wg.Go(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		paused := s.snapshot().Paused
		l, seq, err := s.running(i)
		if err != nil || seq != ex.Seq || ex.Paused == paused {
			return
		}
		ctx, cancel := context.WithTimeout(l.Context(), freezeTime)
		defer cancel()
		if err := s.b.executions.Pause(ctx, on(l, seq), paused); err != nil {
			s.b.cfg.Log.Warn("a program could not be paused or resumed", "lease", l.ID, "rank", i, "paused", paused,
				"err", err)
		}
	})
}

// freezeTime bounds the pause or resume of one rank.
const freezeTime = 10 * time.Second
