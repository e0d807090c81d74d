package hooks

import (
	"context"
	"time"

	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
)

// Files lays out the inputs of a program, and stores its outputs.
type Files struct {
	Blobs workload.Blobs
	From  executor.Files
}

var (
	_ executor.Prestart  = Files{}
	_ executor.Poststart = Files{}
	_ executor.Recovery  = Files{}
	_ executor.Exit      = Files{}
	_ executor.Stop      = Files{}
)

// Prestart fetches the inputs, from their URLs or the peer that commands the execution. Outputs, and the files that a
// container writes outside of them, are in one volume where the runtime has volumes.
func (f Files) Prestart(ctx context.Context, e *executor.Execution, l *executor.Launch) (err error) {
	e.Say("fetching inputs")
	var volume workload.MakeVolume
	v, ok := l.Runtime.(runtime.Volumer)
	layer := ok && e.Work.Image != "" && v.KeepsLayers()
	if layer || ok && workload.Writes(e.Work) {
		volume = v.MakeVolume
	}
	l.Spec.Mounts, err = e.Stage().Prepare(ctx, e.Work, e.Commander(), f.Blobs, f.From.Obtain, e.Disk(), volume)
	if _, stores := l.Runtime.(runtime.Storer); err == nil && stores && len(e.Work.Inputs) > 0 {
		l.Spec.Mounts = nil
		l.Spec.Limits.DiskMiB, err = f.beside(e)
	}
	if err == nil && layer {
		l.Spec.Layer, err = e.Stage().Layer()
	}
	return err
}

// Exited stores the outputs of a program that exited or was stopped. It changes no file, so it can be repeated.
func (f Files) Exited(ctx context.Context, e *executor.Execution, r *executor.Result) (err error) {
	if r.Lost() {
		return nil
	}
	r.Outputs, err = e.Stage().Collect(ctx, e.Work.Outputs, f.Blobs, e.Disk())
	return err
}

// Stop removes the program's files. Its logs stay.
func (f Files) Stop(e *executor.Execution) error { return e.Stage().Clear() }

// beside returns the MiB of a volume's disk that its file leaves to its directory.
func (f Files) beside(e *executor.Execution) (uint32, error) {
	c, err := workload.CID(e.Work.Inputs[0].GetBlob())
	if err != nil {
		return 0, err
	}
	size, err := workload.SizeOf(f.Blobs, c)
	if err != nil {
		return 0, err
	}
	left := (e.Disk() - size) >> 20
	if left < 1 {
		return 0, workload.Bad("volume: no room beside its file of %d bytes on %d MiB of disk", size, e.Disk()>>20)
	}
	return uint32(left), nil
}

// regrantEvery is the interval at which the file of a volume is looked up, and its owner allowed to read it again: a
// peer forgets the oldest permissions.
const regrantEvery = time.Minute

// Poststart watches the file of a volume.
func (f Files) Poststart(_ context.Context, e *executor.Execution) error {
	f.watch(e)
	return nil
}

// Recover watches the file of a volume of an earlier process.
func (f Files) Recover(e *executor.Execution) { f.watch(e) }

// watch ends a volume whose file is lost, so that its buyer learns of the loss and pays no longer.
func (f Files) watch(e *executor.Execution) {
	if _, stores := e.Runtime().(runtime.Storer); !stores || len(e.Work.Inputs) == 0 {
		return
	}
	e.Go(func(ctx context.Context) {
		tick := time.NewTicker(regrantEvery)
		defer tick.Stop()
		for {
			for _, c := range workload.CIDs(e.Work.Inputs[0].GetBlob()) {
				if !f.Blobs.Has(c) {
					_ = executor.Halt(e) // else the next process ends it
					return
				}
			}
			executor.Regrant(e)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}
