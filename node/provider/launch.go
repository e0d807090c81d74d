package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/overlay/egress"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/exclusive"
)

const (
	// maxModule bounds the program of a workload, bytes.
	maxModule = 512 << 20
	// tellEvery is the interval of reports on fetching to an execution's followers.
	tellEvery = 500 * time.Millisecond
)

// Reasons of executions that failed without their program's doing, beside those of the runtime.
const (
	reasonLost   = string(runtime.ReasonLost)
	reasonOutput = "output" // its outputs cannot be stored

	// endedOutside is a buyer's message about a lost program.
	endedOutside = "its sandbox was ended from outside, as when this machine or its container engine is stopped"
)

// EnvDevices names the GPUs of its lease for a program: "NVIDIA H100 80GB HBM3 (simulated), …". It could not find
// simulated ones in its container.
const EnvDevices = "STARLING_DEVICES"

// launching is the provider's part in launching programs.
type launching struct {
	unseal     func(box []byte, l market.LeaseID) ([]byte, error)
	devices    func(units []market.UnitID) (ids, names []string, err error)
	vacate     func(units []market.UnitID)
	allowImage func(image string) error
	outside    egress.Mode
	retain     time.Duration
	drop       func(c cid.Cid)
}

func (x *executor) host() workload.Host {
	return workload.Host{Runtimes: x.runtimes, Network: x.outside, AllowImage: x.allowImage, Secrets: x.unseal != nil, Overlay: func(rt runtime.Runtime) error { return x.joins(x.ctx, rt) }}
}

// failure is the reason of an execution that could not be launched. A fault of the image would recur at every provider;
// others may not occur at the next.
func failure(err error) string {
	switch {
	case errors.Is(err, runtime.ErrBadImage):
		return protocol.ReasonImage
	case errors.Is(err, runtime.ErrNoProgram):
		return protocol.ReasonProgram
	case errors.Is(err, runtime.ErrCredentials):
		return protocol.ReasonCredentials
	}
	return protocol.ReasonStart
}

// errLate reports that fetching a program's files did not end in time.
var errLate = errors.New("fetching what it needs took too long")

const (
	// notStarted is a buyer's message about a start that failed for a reason of this machine's.
	notStarted = "this provider could not start it; another may"
	// notStored is the same of outputs.
	notStored = "what the program left could not be stored by this provider"
)

// classes are errors that a buyer gets as class and advice. The rest of their text may be an engine's, a file system's
// or a stranger's, and name parts of this machine and its network.
var classes = []struct {
	of   error
	told string
}{
	{runtime.ErrEngine, noEngine},
	{runtime.ErrBadImage, "image cannot be run: check its name and digest, and what it is made for"},
	{runtime.ErrCredentials, "registry refused the credentials: check the job's registryAuth and the image's name"},
	{runtime.ErrRegistry, "registry cannot be reached: check the image's name, or try again later"},
	{runtime.ErrNoRoom, "this provider's disk has no room for it; another may have"},
	{runtime.ErrDevice, "this provider could not give it its devices; another may"},
	{runtime.ErrNoOverlay, "this provider could not give it its network; another may"},
	{blob.ErrDigest, "what was fetched from its buyer is not what its digest says"},
	{blob.ErrNotFound, "its buyer does not have what the job needs any more"},
	{blob.ErrDiskFull, "this provider's disk is full; another may have room"},
	{blob.ErrFull, "this provider's disk is full; another may have room"},
	{stream.ErrUnreachable, "its buyer could not be reached for what the job needs"},
}

// plain are errors with a text of this program's alone, about the buyer's input or its program's output.
var plain = []error{workload.ErrWorkload, runtime.ErrNoProgram, runtime.ErrBadModule, blob.ErrTooLarge, blob.ErrTree, blob.ErrArchive}

// told is a buyer's text of an error: its class, or else rest. The operator's log has all of it.
func told(err error, rest string) string {
	var f *runtime.Failure
	if errors.As(err, &f) {
		return f.Told()
	}
	for _, p := range plain {
		if errors.Is(err, p) {
			return err.Error()
		}
	}
	for _, c := range classes {
		if errors.Is(err, c.of) {
			return c.told
		}
	}
	return rest
}

// secrets opens the sealed part of a workload. It stays in memory; the journal has the box.
func (x *executor) secrets(l market.LeaseID, w *nodepb.Workload) (*nodepb.Secrets, error) {
	if len(w.Sealed) == 0 {
		return &nodepb.Secrets{}, nil
	}
	if x.unseal == nil {
		return nil, workload.Bad("secrets cannot be opened here")
	}
	plain, err := x.unseal(w.Sealed, l)
	if err != nil {
		return nil, workload.Bad("its secrets were not sealed to this provider for this lease")
	}
	return workload.Secrets(plain)
}

// launch fetches the workload's files and starts it.
func (x *executor) launch(ctx context.Context, e *execution, rt runtime.Runtime) error {
	fetching, limit := ctx, time.Duration(e.work.PullMillis)*time.Millisecond
	if limit > 0 {
		var cancel context.CancelFunc
		fetching, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	spec, err := x.prepare(fetching, e, rt)
	if err != nil {
		if limit > 0 && ctx.Err() == nil && errors.Is(fetching.Err(), context.DeadlineExceeded) {
			return &runtime.Failure{Class: errLate, Advice: fmt.Sprintf("longer than the %v it was given", limit), Cause: err}
		}
		return err
	}
	x.takeSnapshot(e, exclusive.Before)
	if x.vacate != nil {
		x.vacate(e.rec.Units)
	}
	h, err := rt.Start(ctx, spec)
	if err != nil {
		return fmt.Errorf("starting the program: %w", err)
	}
	e.mu.Lock()
	e.handle = &h
	e.state.State, e.state.Message, e.state.StartedMillis = nodepb.ExecState_EXEC_STATE_RUNNING, "", uint64(time.Now().UnixMilli())
	if e.work.Health != nil {
		e.state.Health = nodepb.Health_HEALTH_STARTING
	}
	stop, grace := e.stop, e.grace
	e.mu.Unlock()
	if err := x.persist(x.ctx, e); err != nil {
		_ = rt.Destroy(context.WithoutCancel(ctx), h) // an execution outside the journal must not run
		return err
	}
	if err := x.join(ctx, e); err != nil {
		x.leave(e)
		_ = rt.Destroy(context.WithoutCancel(ctx), h)
		return &runtime.Failure{Class: runtime.ErrNoOverlay, Advice: "this provider could not give it its network; another may", Cause: err}
	}
	e.changed()
	if stop {
		return rt.Stop(x.ctx, h, grace)
	}
	return nil
}

// disk is how many bytes the execution's files may have.
func (e *execution) disk() int64 {
	if e.work.DiskMib > 0 {
		return int64(e.work.DiskMib) << 20
	}
	return int64(cmp.Or(e.rec.Limits.DiskMiB, runtime.DefaultDiskMiB)) << 20
}

// prepare fetches the program and its inputs and says how to run it.
func (x *executor) prepare(ctx context.Context, e *execution, rt runtime.Runtime) (runtime.Spec, error) {
	w, st := e.work, x.stage(e)
	spec := runtime.Spec{
		ID:   fmt.Sprintf("%s-%d", e.rec.Lease.String()[:16], e.state.Seq),
		Args: w.Args, Env: w.Env, Limits: e.rec.Limits, Dir: st.Run(), Seed: w.Seed, User: e.rec.User,
		Entrypoint: w.Entrypoint, WorkDir: w.WorkDir,
	}
	spec.Limits.WallTime = time.Duration(w.WallMillis) * time.Millisecond
	if w.MemoryMib > 0 {
		spec.Limits.MemoryMiB = w.MemoryMib
	}
	spec.Limits.DiskMiB = uint32(e.disk() >> 20)
	secrets, err := x.secrets(e.rec.Lease, w)
	if err != nil {
		return spec, err
	}
	spec.Secrets, spec.SecretEnv = secrets.Files, secrets.Env
	if images, ok := rt.(runtime.Images); ok {
		err = x.pull(ctx, e, images, secrets)
		spec.Image = w.Image
	} else {
		spec.Module, err = x.module(ctx, e)
	}
	if err != nil {
		return spec, err
	}
	if _, ok := rt.(runtime.Images); ok && x.devices != nil {
		var names []string
		if spec.GPUs, names, err = x.devices(e.rec.Units); err != nil {
			return spec, fmt.Errorf("giving it its devices: %w", err)
		}
		if len(names) > 0 {
			spec.Env = maps.Clone(spec.Env)
			if spec.Env == nil {
				spec.Env = map[string]string{}
			}
			spec.Env[EnvDevices] = strings.Join(names, ", ")
		}
		e.mu.Lock()
		e.state.Devices = names
		e.mu.Unlock()
	}
	e.overlay(&spec)
	e.say("fetching its inputs")
	var makeVolume workload.MakeVolume
	if v, ok := rt.(runtime.Volumer); ok && len(w.Outputs) > 0 {
		makeVolume = v.MakeVolume
	}
	spec.Mounts, err = st.Prepare(ctx, w, e.buyer(), x.blobs, x.fetch, e.disk(), makeVolume)
	return spec, err
}

// module fetches the program of a wasm workload and returns its file.
func (x *executor) module(ctx context.Context, e *execution) (string, error) {
	id, err := workload.CID(e.work.Module)
	if err != nil {
		return "", err
	}
	e.say("fetching the program")
	if err := x.fetch(ctx, e.buyer(), id, maxModule); err != nil {
		return "", fmt.Errorf("fetching the program: %w", err)
	}
	program, err := x.blobs.Path(id)
	if err != nil {
		return "", fmt.Errorf("fetching the program: %w", err)
	}
	return program, nil
}

// pull brings the image of a container.
func (x *executor) pull(ctx context.Context, e *execution, images runtime.Images, s *nodepb.Secrets) error {
	var auth *runtime.RegistryAuth
	if s.RegistryUsername != "" || s.RegistryPassword != "" {
		auth = &runtime.RegistryAuth{Username: s.RegistryUsername, Password: s.RegistryPassword}
	}
	e.say("pulling " + e.work.Image)
	return images.Pull(ctx, e.work.Image, auth, e.progress) // its errors name the image
}

// say reports the current work for the execution to its followers.
func (e *execution) say(message string) {
	e.mu.Lock()
	e.state.Message = message
	e.mu.Unlock()
	e.changed()
}

// progress records the fetched part of an image, and reports it from time to time.
func (e *execution) progress(done, total int64) {
	e.mu.Lock()
	e.state.PulledBytes, e.state.PullTotal = uint64(max(done, 0)), uint64(max(total, 0))
	now := time.Now()
	tell := now.Sub(e.told) >= tellEvery
	if tell {
		e.told = now
	}
	e.mu.Unlock()
	if tell {
		e.changed()
	}
}
