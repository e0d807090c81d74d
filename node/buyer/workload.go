package buyer

import (
	"context"
	"crypto/rand"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	work "github.com/starling-network/starling/node/workload"
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

// jitter spreads retries, so that two buyers that blocked each other do not meet again.
func jitter(d time.Duration) time.Duration {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return d/2 + d*time.Duration(uint16(b[0])<<8|uint16(b[1]))/(1<<16)
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

// fit reports whether a path that a peer names is absolute and can be printed.
func fit(p string) bool { return path.IsAbs(p) && market.Clean(p, len(p)) == p }

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

// liveOf is an execution as its user sees it while it runs.
func liveOf(ex *nodepb.Execution) Live {
	l := Live{Message: executions.Clean(ex.Message), Pulled: ex.PulledBytes, PullTotal: ex.PullTotal, Ways: mesh.WaysOf(ex)}
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
		l.Message = executions.Clean(ex.HealthMessage)
	}
	for _, d := range ex.Devices {
		if len(l.Devices) < maxDevices {
			l.Devices = append(l.Devices, executions.Clean(d))
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
