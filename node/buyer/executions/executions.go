// Package executions reaches the programs that run on a buyer's leases. It starts, pauses and stops them at their
// providers, follows their states and logs, and fetches their outputs.
//
//	Start ──▸ pulling ──▸ running ──▸ healthy ──▸ ended ──▸ Gather
//	          Follower: reports, log, progress
//
// The job's state machine, node/buyer/jobs, decides on the consequences. A provider's reports are not trusted: texts
// are cleaned, and outputs are fetched by their digests, within the disk of the lease.
package executions

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

const (
	// Redial is the pause before a provider that broke off is called again.
	Redial = 200 * time.Millisecond
	// CallTime bounds a call that a running program does not wait for.
	CallTime = 10 * time.Second
)

// Config is the configuration of a Client. All of it is required.
type Config struct {
	Host *p2p.Host
	Tag  string // of the network
	// Fetch brings a blob of at most max bytes from a peer into the store.
	Fetch     func(ctx context.Context, from peer.ID, c cid.Cid, max int64) error
	LostAfter time.Duration // silence after which a provider counts as lost
	MaxOutput int64         // bytes of one output
}

// Client calls providers.
type Client struct{ cfg Config }

// New returns a client.
func New(cfg Config) *Client { return &Client{cfg} }

// Execution names one run of a program.
type Execution struct {
	Peer  peer.ID        // the provider
	Lease market.LeaseID // the first of its chain
	Seq   uint64
}

// Lease is the lease that a program runs on; leases.Lease implements it.
type Lease interface {
	// Context ends when the lease is lost.
	Context() context.Context
	// LostReason returns why the lease is lost, or "".
	LostReason() string
	// Disk returns the lease's disk in bytes.
	Disk() int64
}

// Final returns the refusal of a peer that another try would not change, or nil.
func Final(err error) *stream.Refused {
	var no *stream.Refused
	if errors.As(err, &no) && no.Code != stream.CodeBusy && no.Code != stream.CodeClosing {
		return no
	}
	return nil
}

// call sends a request about an execution.
func (c *Client) call(ctx context.Context, x Execution, req *nodepb.ExecRequest) (*nodepb.Execution, error) {
	req.Lease, req.Seq = x.Lease[:], x.Seq
	c.cfg.Host.Forgive(x.Peer)
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	reply, err := protocol.Exec.Call(ctx, c.cfg.Host, c.cfg.Tag, x.Peer, req)
	return reply.GetExecution(), err
}

// patience is how long one call may take: a silent provider is called several times before it is lost.
func (c *Client) patience() time.Duration {
	return min(max(c.cfg.LostAfter/3, protocol.QuickAnswer), protocol.BusyAnswer)
}

// Start has the provider run a program. A repeated call finds the same execution.
func (c *Client) Start(ctx context.Context, x Execution, w *nodepb.Workload) error {
	start := &nodepb.ExecRequest_Start_{Start: &nodepb.ExecRequest_Start{Workload: w}}
	_, err := c.call(ctx, x, &nodepb.ExecRequest{Op: start})
	return err
}

// Stop has the provider end a program, which gets grace for it.
func (c *Client) Stop(ctx context.Context, x Execution, grace time.Duration) error {
	stop := &nodepb.ExecRequest_Stop{GraceMillis: uint64(grace / time.Millisecond)}
	_, err := c.call(ctx, x, &nodepb.ExecRequest{Op: &nodepb.ExecRequest_Stop_{Stop: stop}})
	return err
}

// Pause requests that the provider freezes or resumes a program.
func (c *Client) Pause(ctx context.Context, x Execution, paused bool) error {
	req := &nodepb.ExecRequest{Op: &nodepb.ExecRequest_Pause_{Pause: &nodepb.ExecRequest_Pause{}}}
	if !paused {
		req.Op = &nodepb.ExecRequest_Resume_{Resume: &nodepb.ExecRequest_Resume{}}
	}
	_, err := c.call(ctx, x, req)
	return err
}

// Join sends the provider the plan of a program's cluster.
func (c *Client) Join(ctx context.Context, x Execution, plan *nodepb.ClusterPlan) error {
	members := &nodepb.ExecRequest_Members_{Members: &nodepb.ExecRequest_Members{Plan: plan}}
	_, err := c.call(ctx, x, &nodepb.ExecRequest{Op: members})
	return err
}

// Status requests the state of a program, once. It returns stream.ErrBadReply for an answer without one.
func (c *Client) Status(ctx context.Context, x Execution) (*nodepb.Execution, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTime)
	defer cancel()
	ex, err := c.status(ctx, x)
	if err == nil && ex == nil {
		err = stream.ErrBadReply
	}
	return ex, err
}

func (c *Client) status(ctx context.Context, x Execution) (*nodepb.Execution, error) {
	status := &nodepb.ExecRequest_Status_{Status: &nodepb.ExecRequest_Status{}}
	return c.call(ctx, x, &nodepb.ExecRequest{Op: status})
}

// Await requests the state of a program for as long as a silent provider is waited for. A provider keeps the outputs of
// a program for a time after its end, so a buyer that was away polls it before it counts the rank as lost.
func (c *Client) Await(ctx context.Context, x Execution) (*nodepb.Execution, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.LostAfter)
	defer cancel()
	for {
		ex, err := c.status(ctx, x)
		if err == nil || Final(err) != nil {
			return ex, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(Redial):
		}
	}
}

// ExitOf returns the end of an execution as its provider reports it. refused is the reason of a provider that could not
// run the program, else empty.
func ExitOf(ex *nodepb.Execution) (exit jobs.Exit, refused string) {
	failed := ex.State == nodepb.ExecState_EXEC_STATE_FAILED
	if failed && ex.Reason == protocol.ReasonStart {
		refused = "the provider could not run it: " + record.Clean(ex.Message)
	}
	exit = jobs.Exit{Code: int(ex.ExitCode), Reason: record.Clean(ex.Reason), Detail: record.Clean(ex.Message)}
	switch ex.Reason {
	case protocol.ReasonImage, protocol.ReasonProgram, protocol.ReasonCredentials, protocol.ReasonInput:
		exit.Hopeless = true
	}
	reason := runtime.Reason(ex.Reason)
	exit.Broken = reason == runtime.ReasonLost || reason == runtime.ReasonKilled
	if failed && exit.Reason == "" {
		exit.Reason = "failed"
	}
	return exit, refused
}

// Sized adds the size of a lease to the exit of a program that had too little memory or disk.
func Sized(exit jobs.Exit, units uint16, per market.Resources) jobs.Exit {
	mib, what := per.MemoryMiB, "memory"
	switch runtime.Reason(exit.Reason) {
	case runtime.ReasonOOM:
	case runtime.ReasonDisk:
		mib, what = per.DiskMiB, "disk"
	default:
		return exit
	}
	if exit.Detail == "" && mib > 0 {
		exit.Detail = fmt.Sprintf("the lease has %d MiB of %s", uint64(units)*uint64(mib), what)
	}
	return exit
}

// Result is the result of Gather.
type Result struct {
	Outputs []jobs.File
	Lost    string // the lease is lost, for this reason; empty: it is not
}

// Gather fetches the outputs that the job asked for from the provider of an ended program. Together they are bounded by
// the lease's disk. A provider that lists other outputs, or does not deliver one, loses its lease: Result.Lost. The
// errors are this peer's own.
func (c *Client) Gather(
	ctx context.Context, x Execution, l Lease, ex *nodepb.Execution, wanted []job.Output,
) (res Result, err error) {
	if runtime.Reason(ex.Reason) == runtime.ReasonLost {
		// The buyer did not end it: the lease ended, or the provider's peer did.
		res.Lost = "the provider ended it: " + strings.TrimSuffix(record.Clean(ex.Reason+": "+ex.Message), ": ")
		if why := l.LostReason(); why != "" {
			res.Lost = why
		}
		return res, nil
	}
	if ex.State == nodepb.ExecState_EXEC_STATE_FAILED {
		_, res.Lost = ExitOf(ex)
		return res, nil
	}
	left, seen := work.MaxOutputs(l.Disk()), map[string]bool{}
	for _, o := range ex.Outputs {
		if !slices.Contains(wanted, job.Output{Path: o.GetPath()}) || seen[o.Path] {
			res.Lost = fmt.Sprintf("the provider named an output %q that is not in the job, or one twice",
				record.Clean(o.GetPath()))
			return res, nil
		}
		seen[o.Path] = true
		id, err := work.CID(o.GetBlob())
		if err != nil {
			res.Lost = fmt.Sprintf("the provider named a malformed output %q", record.Clean(o.Path))
			return res, nil
		}
		if o.Blob.Size > math.MaxInt64 || int64(o.Blob.Size) > c.cfg.MaxOutput { // the job fails for it
			return res, nil
		}
		size := int64(o.Blob.Size)
		if left -= size; left < 0 {
			res.Lost = fmt.Sprintf(
				"the provider named outputs with more bytes than the %d MiB of disk that the lease has", l.Disk()>>20)
			return res, nil
		}
		err = c.fetch(ctx, x, l, id, size)
		switch {
		case ctx.Err() != nil:
			return Result{}, ctx.Err()
		case work.NoRoom(err):
			return Result{}, fmt.Errorf("keeping output %s: %w", o.Path, err)
		case err != nil:
			res.Lost = fmt.Sprintf("its output %s could not be fetched: %v", o.Path, err)
			return res, nil
		}
		res.Outputs = append(res.Outputs, jobs.File{Path: o.Path, CID: id.String(), Bytes: size, Tree: o.Blob.Tree})
	}
	return res, nil
}

// fetch fetches an output. It ends with a lease that is lost meanwhile; after the end of a lease it does not. A
// provider whose programs all ended at the same time serves some of the outputs first. While it is busy, the request is
// repeated for up to LostAfter.
func (c *Client) fetch(ctx context.Context, x Execution, l Lease, id cid.Cid, size int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if lease := l.Context(); lease.Err() == nil {
		defer context.AfterFunc(lease, cancel)()
	}
	waiting, stop := context.WithTimeout(ctx, c.cfg.LostAfter)
	defer stop()
	return stream.WhileBusy(waiting, func() error { return c.cfg.Fetch(ctx, x.Peer, id, size) })
}
