package buyer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	work "github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/stream"
)

// The environment that tells a program which part of the job it is.
const (
	EnvJob   = "STARLING_JOB"
	EnvRank  = "STARLING_RANK"
	EnvCount = "STARLING_COUNT"
	EnvRound = "STARLING_ROUND"
	// EnvRounds is how many rounds there are.
	EnvRounds = "STARLING_ROUNDS"
)

// redial is how long to wait before a provider that broke off is tried again.
const redial = 200 * time.Millisecond

// pause returns after d, or with the error of a context that ends before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// final returns the refusal of a peer that another try would not change, or nil.
func final(err error) *stream.Refused {
	var no *stream.Refused
	if errors.As(err, &no) && no.Code != stream.CodeBusy && no.Code != stream.CodeClosing {
		return no
	}
	return nil
}

// jitter spreads retries, so that two buyers that blocked each other do not meet again.
func jitter(d time.Duration) time.Duration {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return d/2 + d*time.Duration(uint16(b[0])<<8|uint16(b[1]))/(1<<16)
}

// result is how one execution went.
type result struct {
	exit    int
	reason  string // of the runtime; empty when the program ended by itself
	message string
	outputs []Output
	lost    string // not empty: the lease is lost, for this reason
}

// workload returns a rank's program in the job's current round.
func workload(j Job, rank int) (*nodepb.Workload, error) {
	spec := j.Spec
	w := &nodepb.Workload{
		Runtime: spec.Runtime, Image: spec.Image, Entrypoint: spec.Entrypoint, Args: spec.Args, WorkDir: spec.WorkDir,
		Network: string(spec.Network), Env: map[string]string{}, Health: pbHealth(spec.Health),
		PullMillis: uint64(spec.Timeouts.Pull.Milliseconds()), KeepMillis: uint64(time.Duration(spec.Keep).Milliseconds()),
	}
	if spec.Module != "" {
		module, err := pbBlob(Blob(spec.Blobs[spec.Module]))
		if err != nil {
			return nil, fmt.Errorf("module: %w", err)
		}
		w.Module = module
	}
	for k, v := range spec.Env {
		w.Env[k] = v
	}
	w.Env[EnvJob], w.Env[EnvRank], w.Env[EnvCount] = j.ID, strconv.Itoa(rank), strconv.Itoa(len(j.Ranks))
	w.Env[EnvRound], w.Env[EnvRounds] = strconv.Itoa(j.Round), strconv.Itoa(spec.RoundCount())
	if spec.Verify == job.VerifyReplicate {
		determined(j, rank, w)
	}
	if j.Cluster != nil {
		j.clustered(rank, w)
	}
	for _, in := range spec.Inputs {
		b, ok := spec.Blobs[in.For(rank)]
		if !ok {
			return nil, fmt.Errorf("input %s was not uploaded", in.For(rank))
		}
		pb, err := pbBlob(Blob(b))
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", in.For(rank), err)
		}
		w.Inputs = append(w.Inputs, &nodepb.Input{Blob: pb, Path: in.Path})
	}
	if spec.Rounds != nil && j.Carry != nil {
		pb, err := pbBlob(*j.Carry)
		if err != nil {
			return nil, err
		}
		w.Inputs = append(w.Inputs, &nodepb.Input{Blob: pb, Path: spec.Rounds.Carry})
	}
	for _, out := range spec.Outputs {
		w.Outputs = append(w.Outputs, out.Path)
	}
	return w, nil
}

func pbBlob(b Blob) (*nodepb.Blob, error) {
	c, err := cid.Parse(b.CID)
	if err != nil {
		return nil, fmt.Errorf("digest %q: %w", b.CID, err)
	}
	return &nodepb.Blob{Cid: c.Bytes(), Size: uint64(b.Size), Tree: b.Tree}, nil
}

// start asks the provider to run it; asking again finds the same execution.
func (b *Buyer) start(ctx context.Context, l *leases.Lease, req *nodepb.ExecRequest) error {
	b.cfg.Host.Forgive(l.Peer)
	_, err := protocol.Exec.Call(ctx, b.cfg.Host, b.tag, l.Peer, req)
	return err
}

// gather fetches an ended execution's outputs, verified by digest: of the outputs that the job asked for, and together
// no more than archives of the lease's disk.
func (b *Buyer) gather(ctx context.Context, l *leases.Lease, ex *nodepb.Execution, wanted []job.Output) (result, error) {
	res := result{exit: int(ex.ExitCode), reason: clip(ex.Reason), message: clip(ex.Message)}
	if r := runtime.Reason(ex.Reason); r == runtime.ReasonLost {
		// Nobody here asked for that: the lease ended, or the provider's peer did.
		res.lost = "the provider ended it: " + strings.TrimSuffix(clip(ex.Reason+": "+ex.Message), ": ")
		if why := l.LostReason(); why != "" {
			res.lost = why
		}
		return res, nil
	}
	if ex.State == nodepb.ExecState_EXEC_STATE_FAILED {
		if ex.Reason == protocol.ReasonStart {
			res.lost = "the provider could not run it: " + clip(ex.Message)
		} else if res.reason == "" {
			res.reason = "failed"
		}
		return res, nil
	}
	left, seen := work.MaxOutputs(l.Disk()), map[string]bool{}
	for _, o := range ex.Outputs {
		if !slices.Contains(wanted, job.Output{Path: o.GetPath()}) || seen[o.Path] {
			res.lost = fmt.Sprintf("the provider named an output %q that the job did not ask for, or one twice", clip(o.GetPath()))
			return res, nil
		}
		seen[o.Path] = true
		c, err := work.CID(o.GetBlob())
		if err != nil {
			res.lost = fmt.Sprintf("the provider named a malformed output %q", clip(o.Path))
			return res, nil
		}
		if o.Blob.Size > math.MaxInt64 || int64(o.Blob.Size) > b.cfg.MaxOutput {
			res.reason, res.message = "output", fmt.Sprintf("output %s has %d bytes, at most %d are taken", clip(o.Path), o.Blob.Size, b.cfg.MaxOutput)
			return res, nil
		}
		if left -= int64(o.Blob.Size); left < 0 {
			res.lost = fmt.Sprintf("the provider named outputs with more bytes than the %d MiB of disk that the lease has", l.Disk()>>20)
			return res, nil
		}
		fctx, cancel := context.WithCancel(ctx)
		stop := func() bool { return false }
		if l.Context().Err() == nil { // outputs may be fetched after the lease's end
			stop = context.AfterFunc(l.Context(), cancel)
		}
		err = b.cfg.Fetch(fctx, l.Peer, c, int64(o.Blob.Size))
		stop()
		cancel()
		switch {
		case ctx.Err() != nil:
			return result{}, ctx.Err()
		case work.NoRoom(err):
			return result{}, fmt.Errorf("keeping output %s: %w", o.Path, err)
		case err != nil:
			res.lost = fmt.Sprintf("its output %s could not be fetched: %v", o.Path, err)
			return res, nil
		}
		res.outputs = append(res.outputs, Output{Path: o.Path, Blob: Blob{CID: c.String(), Size: int64(o.Blob.Size), Tree: o.Blob.Tree}})
	}
	return res, nil
}

// clip bounds and cleans text that came from a peer.
func clip(s string) string {
	const most = 800
	if len(s) > most {
		return market.Clean(s, most) + "…"
	}
	return market.Clean(s, most)
}

// fit reports whether a path that a peer names is absolute and can be printed.
func fit(p string) bool { return path.IsAbs(p) && market.Clean(p, len(p)) == p }

// stopExecution asks the provider to end l's execution, and returns its state.
func (b *Buyer) stopExecution(ctx context.Context, l *leases.Lease, seq uint64, grace time.Duration) (*nodepb.Execution, error) {
	reply, err := protocol.Exec.Call(ctx, b.cfg.Host, b.tag, l.Peer, &nodepb.ExecRequest{Lease: l.First[:], Seq: seq,
		Op: &nodepb.ExecRequest_Stop_{Stop: &nodepb.ExecRequest_Stop{GraceMillis: uint64(grace / time.Millisecond)}}})
	return reply.GetExecution(), err
}

// grantInputs lets a provider read the inputs of its workload.
func (b *Buyer) grantInputs(to peer.ID, w *nodepb.Workload) {
	grant := func(bl *nodepb.Blob) {
		if c, err := work.CID(bl); err == nil {
			b.cfg.Grant(to, c)
		}
	}
	if w.Module != nil {
		grant(w.Module)
	}
	for _, in := range w.Inputs {
		grant(in.Blob)
	}
}
