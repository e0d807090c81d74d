package hooks

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
)

// maxModule bounds the module of a workload, bytes.
const maxModule = 512 << 20

// Program brings the image or the module of a workload. It stays after the end, so that the next start is fast. So do
// the parts of a pushed image, for the next image with the same layers; the store of blobs removes them when it needs
// room.
type Program struct {
	Blobs workload.Blobs
	From  executor.Files
}

var (
	_ executor.Prestart = Program{}
	_ executor.Exit     = Program{}
)

// Prestart implements executor.Prestart.
func (p Program) Prestart(ctx context.Context, e *executor.Execution, l *executor.Launch) error {
	if _, stores := l.Runtime.(runtime.Storer); stores {
		return nil // a volume has none
	}
	if digest, pushed := runtime.PushedDigest(e.Work.Image); pushed {
		return p.load(ctx, e, l, digest)
	}
	if images, ok := l.Runtime.(runtime.Images); ok {
		return p.pull(ctx, e, l, images)
	}
	id, err := workload.CID(e.Work.Module)
	if err != nil {
		return err
	}
	e.Say("fetching the program")
	if err := p.From.Obtain(ctx, workload.At(e.Commander(), e.Work, e.Work.Module), id, maxModule); err != nil {
		return fmt.Errorf("fetching the program: %w", err)
	}
	if l.Spec.Module, err = p.Blobs.Path(id); err != nil {
		return fmt.Errorf("fetching the program: %w", err)
	}
	return nil
}
