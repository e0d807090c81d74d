// Package access connects users to the running programs of a job: it opens streams to them, copies files, and pauses
// them.
package access

import (
	"context"
	"io"
	"log/slog"

	"golang.org/x/sync/semaphore"

	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/p2p/stream"
)

// Jobs finds jobs.
type Jobs interface {
	// Access returns the programs of a job by its id or a unique beginning of it. It returns ErrNoJob.
	Access(id string) (*Programs, error)
}

// Programs are the running programs of one job.
type Programs struct {
	*run.Job
	cfg *Config

	pausing *semaphore.Weighted // one change at a time
}

// New returns the programs of a job.
func New(cfg *Config, j *run.Job) *Programs {
	return &Programs{Job: j, cfg: cfg, pausing: semaphore.NewWeighted(1)}
}

// Config is the surroundings of the programs of all jobs. All of it is required.
type Config struct {
	Executions *executions.Client
	Tasks      leases.Tasks
	Log        *slog.Logger
}

// Door gives users access to programs by the ids of their jobs.
type Door struct {
	jobs       Jobs
	executions *executions.Client
}

// NewDoor returns a door to the programs of jobs.
func NewDoor(all Jobs, e *executions.Client) *Door { return &Door{all, e} }

// Attach runs a program beside that of a rank, and returns the stream to it, which speaks the frames of node/live.
func (d *Door) Attach(ctx context.Context, id string, rank int, p executions.Program) (executions.Conn, error) {
	s, x, _, err := d.reach(id, rank)
	if err != nil {
		return nil, err
	}
	conn, err := d.executions.Attach(ctx, x, p)
	return opened(s, conn, err)
}

// Forward connects to a TCP port of a rank's program. The stream carries its bytes as they are.
func (d *Door) Forward(ctx context.Context, id string, rank int, port uint16) (executions.Conn, error) {
	s, x, _, err := d.reach(id, rank)
	if err != nil {
		return nil, err
	}
	conn, err := d.executions.Forward(ctx, x, port)
	return opened(s, conn, err)
}

// opened keeps a stream that is not there from being an interface that is, and counts it for as long as it is open.
func opened(j *run.Job, c *stream.Conn, err error) (executions.Conn, error) {
	if err != nil {
		return nil, err
	}
	return mesh.Count(c, &j.Streams), nil
}

// CopyOut writes a tar archive of a file or directory of a rank's program to w, see executions.Client.
func (d *Door) CopyOut(ctx context.Context, id string, rank int, file string, w io.Writer) error {
	_, x, l, err := d.reach(id, rank)
	if err != nil {
		return err
	}
	return d.executions.CopyOut(ctx, x, l, file, w)
}

// CopyIn unpacks a tar archive beneath a path of a rank's program, see executions.Client. It closes r.
func (d *Door) CopyIn(ctx context.Context, id string, rank int, file string, directory bool, r io.ReadCloser) error {
	_, x, _, err := d.reach(id, rank)
	if err != nil {
		r.Close()
		return err
	}
	return d.executions.CopyIn(ctx, x, file, directory, r)
}

// reach returns a rank's running program, with its job and lease.
func (d *Door) reach(id string, rank int) (*run.Job, executions.Execution, *leases.Lease, error) {
	p, err := d.jobs.Access(id)
	if err != nil {
		return nil, executions.Execution{}, nil, err
	}
	l, seq, err := p.Running(rank)
	if err != nil {
		return nil, executions.Execution{}, nil, err
	}
	return p.Job, run.On(l, seq), l, nil
}

// Pause freezes the programs of all ranks until Resume, including programs that start meanwhile. It returns the job
// when every provider has done so. Units stay held and are paid for, and timeouts.run continues.
func (d *Door) Pause(ctx context.Context, id string) (record.Job, error) {
	p, err := d.jobs.Access(id)
	if err != nil {
		return record.Job{}, err
	}
	return p.set(ctx, true)
}

// Resume resumes the programs of a paused job.
func (d *Door) Resume(ctx context.Context, id string) (record.Job, error) {
	p, err := d.jobs.Access(id)
	if err != nil {
		return record.Job{}, err
	}
	return p.set(ctx, false)
}
