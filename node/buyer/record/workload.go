package record

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
)

// The environment that identifies a program's part of the job.
const (
	EnvJob   = "STARLING_JOB"
	EnvRank  = "STARLING_RANK"
	EnvCount = "STARLING_COUNT"
	EnvRound = "STARLING_ROUND"
	// EnvRounds is how many rounds there are.
	EnvRounds = "STARLING_ROUNDS"
	// EnvScratch is the scratch directory, of a job that has one; so is envTemp, unless the job sets it.
	EnvScratch = "STARLING_SCRATCH"
	envTemp    = "TMPDIR"
)

// Workload returns a rank's program in the job's current round.
func Workload(j Job, rank int) (*nodepb.Workload, error) {
	spec := j.Spec
	w := &nodepb.Workload{
		Runtime: spec.Runtime, Image: spec.Image, Entrypoint: spec.Entrypoint, Args: spec.Args, WorkDir: spec.WorkDir,
		Network: string(spec.Network), Env: map[string]string{}, Health: pbHealth(spec.Health),
		ShmMib: spec.ShmMiB, PullMillis: millis(job.Span(spec.Timeouts.Pull)), KeepMillis: millis(spec.Keep),
	}
	if spec.Module != "" {
		module, err := pbSource(spec.Blobs[spec.Module])
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
		clustered(j, rank, w)
	}
	for _, part := range spec.ImageParts() {
		pb, err := pbSource(spec.Blobs[part])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part, err)
		}
		w.ImageParts = append(w.ImageParts, pb)
	}
	for _, in := range spec.Inputs {
		b, ok := spec.Blobs[in.For(rank)]
		if !ok {
			return nil, fmt.Errorf("input %s was not uploaded", in.For(rank))
		}
		pb, err := pbSource(b)
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", in.For(rank), err)
		}
		own := in.For(rank) != in.Source && j.Spec.Verify != job.VerifyReplicate // a replica has the same workload
		w.Inputs = append(w.Inputs, &nodepb.Input{Blob: pb, Path: in.Path, Own: own})
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
	if c := spec.Checkpoint; c != nil {
		w.Checkpoint = &nodepb.Checkpoint{Path: c.Path, EveryMillis: millis(c.Every)}
	}
	if spec.Runtime == job.RuntimeVolume && j.Detached != nil { // its leases are signed by a key of this job alone
		w.VolumeOwner = j.Detached.Owner[:]
	}
	for _, v := range spec.Volumes {
		w.Volumes = append(w.Volumes, &nodepb.VolumeMount{Lease: v.Lease[:], Path: v.Path, ReadOnly: v.ReadOnly})
	}
	if spec.ScratchMiB > 0 {
		w.Scratch, w.Env[EnvScratch] = job.ScratchPath, job.ScratchPath
		if _, own := w.Env[envTemp]; !own {
			w.Env[envTemp] = job.ScratchPath
		}
	}
	return w, nil
}

// Continue makes a workload continue from a checkpoint, which providers of other ranks may not read.
func Continue(w *nodepb.Workload, from Blob) error {
	pb, err := pbBlob(from)
	if err == nil {
		w.Inputs = append(w.Inputs, &nodepb.Input{Blob: pb, Path: w.GetCheckpoint().GetPath(), Own: true})
	}
	return err
}

// determined makes a workload deterministic. The program's clock and randomness are derived from the job and the rank,
// and its limits are the job's, even if the provider has more. A replica's workload is identical to the byte.
func determined(j Job, rank int, w *nodepb.Workload) {
	id, count := j.ID, len(j.Ranks)
	if r := j.Replica; r != nil {
		id, rank, count = r.Job, r.Rank, r.Count
	}
	w.Env[EnvJob], w.Env[EnvRank], w.Env[EnvCount] = id, strconv.Itoa(rank), strconv.Itoa(count)
	w.Env[EnvRound] = "0" // a replica has one round
	h := sign.Sum([]byte("starling/job/seed/v1"), []byte(id), binary.LittleEndian.AppendUint32(nil, uint32(rank)))
	w.Seed = max(binary.LittleEndian.Uint64(h[:8]), 1)
	per := j.Spec.Resources
	w.MemoryMib, w.DiskMib = per.PerUnit.MemoryMiB*per.Units, per.PerUnit.DiskMiB*per.Units
}

// readyEvery is the interval of the head's readiness checks.
const readyEvery = job.Span(time.Second)

// clustered makes a workload that of a cluster's rank.
func clustered(j Job, rank int, w *nodepb.Workload) {
	p := j.Engine().Program(j.Task(rank))
	w.Entrypoint, w.Args = p.Entrypoint, p.Args
	for k, v := range p.Env {
		if _, own := w.Env[k]; !own { // the job's own comes first
			w.Env[k] = v
		}
	}
	if r := p.Ready; r != nil {
		// An image that starts slowly is not unhealthy: during StartPeriod its checks only report readiness.
		h := &job.Health{
			Interval: readyEvery, Timeout: job.Span(5 * time.Second), Retries: 30,
			StartPeriod: job.Span(10 * time.Minute),
		}
		if h.TCP = r.Port; r.Path != "" {
			h.TCP, h.HTTP = 0, &job.HTTPGet{Port: r.Port, Path: r.Path}
		}
		w.Health = pbHealth(h)
	}
}

func pbBlob(b Blob) (*nodepb.Blob, error) {
	c, err := cid.Parse(b.CID)
	if err != nil {
		return nil, fmt.Errorf("digest %q: %w", b.CID, err)
	}
	return &nodepb.Blob{Cid: c.Bytes(), Size: uint64(b.Size), Tree: b.Tree}, nil
}

// pbSource is the content of a job's source on the wire.
func pbSource(b job.Blob) (*nodepb.Blob, error) {
	pb, err := pbBlob(Blob{CID: b.CID, Size: b.Size, Tree: b.Tree})
	if err == nil {
		pb.Urls, pb.Remote = b.URLs, !b.Here()
	}
	return pb, err
}

// pbHealth is a job's health check on the wire.
func pbHealth(h *job.Health) *nodepb.HealthCheck {
	if h == nil {
		return nil
	}
	out := &nodepb.HealthCheck{
		IntervalMillis: millis(h.Interval), TimeoutMillis: millis(h.Timeout),
		Retries: h.Retries, StartMillis: millis(h.StartPeriod),
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

func millis(s job.Span) uint64 { return uint64(time.Duration(s).Milliseconds()) }

// ReduceOut is the directory that the reduce program fills.
const ReduceOut = "/out"

// ReduceWorkload returns the reduce program of the job's current round: it finds the output of each rank at /in/<rank>,
// and leaves the next round's carry at ReduceOut.
func ReduceWorkload(j Job) (*nodepb.Workload, error) {
	red := j.Spec.Rounds.Reduce
	w := &nodepb.Workload{Runtime: job.RuntimeWasm, Env: map[string]string{}, Outputs: []string{ReduceOut}}
	for k, v := range j.Spec.Env {
		w.Env[k] = v
	}
	w.Env[EnvJob], w.Env[EnvCount], w.Env[EnvRound] = j.ID, strconv.Itoa(len(j.Ranks)), strconv.Itoa(j.Round)
	w.Env[EnvRounds] = strconv.Itoa(j.Spec.RoundCount())
	add := func(b Blob, path string) error {
		pb, err := pbBlob(b)
		if err == nil {
			w.Inputs = append(w.Inputs, &nodepb.Input{Blob: pb, Path: path})
		}
		return err
	}
	for i, r := range j.Ranks {
		if len(r.Outputs) == 0 {
			return nil, fmt.Errorf("rank %d left no output", i)
		}
		if err := add(r.Outputs[0].Blob, "/in/"+strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	for _, in := range red.Inputs {
		b, ok := j.Spec.Blobs[in.For(0)]
		if !ok {
			return nil, fmt.Errorf("input %s was not uploaded", in.Source)
		}
		if err := add(Blob{CID: b.CID, Size: b.Size, Tree: b.Tree}, in.Path); err != nil {
			return nil, err
		}
	}
	if j.Carry != nil {
		if err := add(*j.Carry, j.Spec.Rounds.Carry); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// ReplicaSpec returns the spec of a job that does the work of rank i of j once more.
func ReplicaSpec(j Job, i int) (job.Job, error) {
	spec := j.Spec
	spec.Count, spec.Webhooks, spec.Restart.Max, spec.Copies = 1, nil, 0, nil
	spec.Inputs = append([]job.Input(nil), spec.Inputs...)
	for k := range spec.Inputs {
		spec.Inputs[k].Source = spec.Inputs[k].For(i)
	}
	blobs := map[string]job.Blob{}
	for _, source := range spec.Sources() {
		b, ok := j.Spec.Blobs[source]
		if !ok {
			return spec, fmt.Errorf("input %s: no longer stored", source)
		}
		blobs[source] = b
	}
	spec.Blobs = blobs
	single := spec
	single.Verify = job.VerifyNone
	cost, err := single.MaxCost()
	spec.Payment.Budget = min(cost, spec.Payment.Budget)
	return spec, err
}
