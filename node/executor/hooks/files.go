package hooks

import (
	"context"

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
	_ executor.Prestart = Files{}
	_ executor.Exit     = Files{}
	_ executor.Stop     = Files{}
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
