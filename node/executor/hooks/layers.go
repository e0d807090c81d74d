package hooks

import (
	"context"
	"io"
	"os"
	"sync"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
)

const (
	// sharedLayer is the size from which a layer is worth the questions to fellows.
	sharedLayer = 4 << 20
	// layersAtOnce bounds the layers of one image that are brought at a time.
	layersAtOnce = 4
)

// pull pulls an image of a registry. Layers of one that the registry gives to anyone come from the providers of other
// ranks too, and go to them: they lie in the store of blobs until the program has ended. An image for which there are
// credentials stays between the registry and this machine.
func (p Program) pull(ctx context.Context, e *executor.Execution, l *executor.Launch, images runtime.Images) error {
	e.Say("pulling " + e.Work.Image)
	l.Spec.Image = e.Work.Image
	fellows := workload.Fellows(e.Work)
	sharer, ok := l.Runtime.(runtime.Sharer)
	if !ok || l.Auth != nil || len(fellows) == 0 {
		return images.Pull(ctx, e.Work.Image, l.Auth, e.Progress) // its errors name the image
	}
	ctx, cancel := context.WithCancel(ctx)
	via := &layers{Program: p, e: e, fellows: fellows, by: e.Commander(), come: map[string]chan struct{}{}}
	defer via.tasks.Wait()
	defer cancel()
	return sharer.PullVia(ctx, e.Work.Image, via, e.Progress)
}

// layers are the layers of an execution's image that are shared with fellows.
type layers struct {
	Program
	e       *executor.Execution
	fellows []peer.ID
	by      peer.ID

	tasks sync.WaitGroup
	come  map[string]chan struct{} // closed when a layer is in the store or not to be had, by digest
}

var _ runtime.Via = (*layers)(nil)

// Begin implements runtime.Via. The fellows may ask for these layers from now on.
func (v *layers) Begin(ctx context.Context, all []runtime.Layer) {
	var cids []cid.Cid
	next := make(chan runtime.Layer, len(all))
	for _, l := range all {
		c, err := workload.LayerCID(l.Digest)
		if err != nil || l.Size < sharedLayer {
			continue
		}
		cids = append(cids, c)
		v.come[l.Digest] = make(chan struct{})
		next <- l
	}
	close(next)
	if len(cids) == 0 {
		return
	}
	leave := v.From.Join(v.by, v.fellows, cids)
	v.e.SetValue(layersKey{}, func() { leave(); v.From.Drop(cids...) })
	for range min(layersAtOnce, len(cids)) {
		v.tasks.Go(func() {
			for l := range next {
				v.bring(ctx, l)
			}
		})
	}
}

// bring brings a layer into the store of blobs. Its errors are found again by the one who reads it from the registry.
func (v *layers) bring(ctx context.Context, l runtime.Layer) {
	defer close(v.come[l.Digest])
	c, err := workload.LayerCID(l.Digest)
	if err != nil || ctx.Err() != nil {
		return
	}
	at := workload.Places{Peer: v.by, Origin: workload.Layer{Layer: l}, Size: l.Size, Fellows: v.fellows}
	_ = v.From.Obtain(ctx, at, c, l.Size)
}

// Open implements runtime.Via.
func (v *layers) Open(ctx context.Context, l runtime.Layer) io.ReadCloser {
	come := v.come[l.Digest]
	if come == nil {
		return nil
	}
	select {
	case <-come:
	case <-ctx.Done():
		return nil
	}
	c, err := workload.LayerCID(l.Digest)
	if err != nil {
		return nil
	}
	path, err := v.Blobs.Path(c)
	if err != nil {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	if st, err := f.Stat(); err != nil || st.Size() != l.Size {
		f.Close()
		return nil
	}
	return f
}

type layersKey struct{}

// Exited implements executor.Exit: fellows read no layer after the end.
func (Program) Exited(_ context.Context, e *executor.Execution, _ *executor.Result) error {
	if leave, ok := e.Value(layersKey{}).(func()); ok {
		leave()
		e.SetValue(layersKey{}, nil)
	}
	return nil
}
