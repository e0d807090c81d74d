package buyer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/p2p/stream"
)

// ErrNotRunning says that a job's rank has no program that runs now; its text says where it stands instead.
var ErrNotRunning = errors.New("no program runs")

// Program is one more program to run beside a rank's own, in its sandbox.
type Program struct {
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`     // on top of the rank's own
	WorkDir string            `json:"workDir,omitempty"` // empty: the rank's own
	TTY     bool              `json:"tty,omitempty"`     // a terminal of so many rows and columns
	Rows    uint16            `json:"rows,omitempty"`
	Cols    uint16            `json:"cols,omitempty"`
}

// Attach runs a program beside that of a rank, and returns the stream to it, which speaks the frames of node/live.
func (b *Buyer) Attach(ctx context.Context, id string, rank int, p Program) (live.Conn, error) {
	conn, _, err := b.reach(ctx, id, rank,
		&nodepb.LiveRequest{Op: &nodepb.LiveRequest_Attach_{Attach: &nodepb.LiveRequest_Attach{
			Args: p.Args, Env: p.Env, WorkDir: p.WorkDir, Tty: p.TTY, Rows: uint32(p.Rows), Cols: uint32(p.Cols),
		}}})
	return b.opened(id, conn, err)
}

// Forward connects to a TCP port of a rank's program. The stream carries its bytes as they are.
func (b *Buyer) Forward(ctx context.Context, id string, rank int, port uint16) (live.Conn, error) {
	conn, err := b.forward(ctx, id, rank, port)
	return b.opened(id, conn, err)
}

// forward is Forward for this peer itself, whose streams are nobody's use of a job.
func (b *Buyer) forward(ctx context.Context, id string, rank int, port uint16) (*stream.Conn, error) {
	conn, _, err := b.reach(ctx, id, rank,
		&nodepb.LiveRequest{Op: &nodepb.LiveRequest_Forward_{Forward: &nodepb.LiveRequest_Forward{Port: uint32(port)}}})
	return conn, err
}

// opened keeps a stream that is not there from being an interface that is, and counts it for as long as it is open.
func (b *Buyer) opened(id string, c *stream.Conn, err error) (live.Conn, error) {
	if err != nil {
		return nil, err
	}
	s, err := b.get(id)
	if err != nil {
		c.Abort()
		return nil, err
	}
	return mesh.Count(c, &s.streams), nil
}

// CopyOut writes a tar archive of a file or directory of a rank's program to w: its first element is called as the
// path's last. The provider sends no more than the lease has disk.
func (b *Buyer) CopyOut(ctx context.Context, id string, rank int, file string, w io.Writer) error {
	conn, l, err := b.reach(ctx, id, rank,
		&nodepb.LiveRequest{Op: &nodepb.LiveRequest_CopyOut_{CopyOut: &nodepb.LiveRequest_CopyOut{Path: file}}})
	if err != nil {
		return err
	}
	defer conn.Abort()
	err = live.Receive(conn, w, live.MaxArchive(l.Disk()))
	if err != nil {
		return fmt.Errorf("copying %s: %w", path.Clean(file), err)
	}
	return nil
}

// CopyIn unpacks a tar archive beneath a path of a rank's program. A path that is a directory gets what is in the
// archive; one that is none becomes the archive's one first element, unless directory says that it must be one. r is
// closed, which must end a Read that waits.
func (b *Buyer) CopyIn(ctx context.Context, id string, rank int, file string, directory bool, r io.ReadCloser) error {
	defer r.Close()
	conn, _, err := b.reach(ctx, id, rank,
		&nodepb.LiveRequest{Op: &nodepb.LiveRequest_CopyIn_{CopyIn: &nodepb.LiveRequest_CopyIn{
			Path: file, Directory: directory,
		}}})
	if err != nil {
		return err
	}
	defer conn.Abort()
	err = live.Send(conn, r)
	if err != nil {
		return fmt.Errorf("copying to %s: %w", path.Clean(file), err)
	}
	return nil
}

// reach opens a stream into a rank's running program.
func (b *Buyer) reach(
	ctx context.Context, id string, rank int, req *nodepb.LiveRequest,
) (*stream.Conn, *leases.Lease, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, nil, err
	}
	l, seq, err := s.running(rank)
	if err != nil {
		return nil, nil, err
	}
	conn, err := b.executions.Open(ctx, on(l, seq), req)
	return conn, l, err
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
