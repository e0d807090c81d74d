package hooks_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// loading is boxes that load pushed images: they read all parts, and keep the names.
type loading struct {
	*boxes
	mu     sync.Mutex
	names  []string
	loaded map[string]string // all parts' bytes, by name
	wait   chan struct{}     // optional; if not nil, loads end when it is closed
}

func (l *loading) Load(ctx context.Context, image string, parts runtime.Parts, _ func(done, total int64)) error {
	l.mu.Lock()
	l.names = append(l.names, image)
	_, there := l.loaded[image]
	l.mu.Unlock()
	if there {
		return nil
	}
	digests := parts.Digests()
	slices.Sort(digests)
	var all strings.Builder
	for _, d := range digests {
		r, size, err := parts.Open(ctx, d, 100)
		if err != nil {
			return err
		}
		n, err := io.Copy(&all, r)
		r.Close()
		if err != nil || n != size {
			return errors.New("a part has another size than it says")
		}
	}
	if l.wait != nil {
		<-l.wait
	}
	l.mu.Lock()
	l.loaded[image] = all.String()
	l.mu.Unlock()
	return nil
}

// named are the names of all loads.
func (l *loading) named() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.names)
}

// obtained are files that note who is asked for them.
type obtained struct {
	*executortest.Files
	mu   sync.Mutex
	from map[peer.ID]int
}

func (o *obtained) Obtain(ctx context.Context, at workload.Places, c cid.Cid, most int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.from[at.Peer]++
	return o.Files.Obtain(ctx, at, c, most)
}

func (o *obtained) asked(id peer.ID) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.from[id]
}

// newLoading is a rig whose boxes load pushed images.
func newLoading(t *testing.T) (*rig, *loading, *obtained) {
	r := newRig(t, nil)
	r.Stop()
	l := &loading{boxes: r.boxes, loaded: map[string]string{}}
	files := &obtained{Files: r.Files, from: map[peer.ID]int{}}
	r.Runtimes["docker"] = l
	r.hooks.Files = files
	r.Hooks = hooks.All(r.hooks, noNetworks{}, nil)
	r.Start()
	return r, l, files
}

// parts stores the parts of an image and returns them with its name.
func (r *rig) parts(contents ...string) (image string, parts []*nodepb.Blob) {
	r.T.Helper()
	for _, content := range contents {
		c, n, err := r.Blobs.Put(r.T.Context(), strings.NewReader(content))
		if err != nil {
			r.T.Fatal(err)
		}
		parts = append(parts, &nodepb.Blob{Cid: c.Bytes(), Size: uint64(n)})
	}
	digest, err := workload.PartDigest(parts[0])
	if err != nil {
		r.T.Fatal(err)
	}
	return "pushed.invalid/app@sha256:" + digest, parts
}

func (r *rig) push(by peer.ID, l market.LeaseID, image string, parts []*nodepb.Blob) *nodepb.Execution {
	r.T.Helper()
	w := &nodepb.Workload{Runtime: "docker", Image: image, ImageParts: parts}
	e, err := r.Executor.Start(r.T.Context(), by, executortest.Lease(l), 1, w)
	if err != nil {
		r.T.Fatal(err)
	}
	return r.Await(e)
}

// The parts of an image come from its buyer, once: a second job of that buyer finds the image. Another buyer that knows
// only the digests finds nothing, and has to send all parts.
func TestAttackKnownImage(t *testing.T) {
	t.Parallel()
	r, l, files := newLoading(t)
	image, parts := r.parts("manifest", "config", "layer")
	evil, err := peer.IDFromPrivateKey(p2ptest.Key(2))
	if err != nil {
		t.Fatal(err)
	}
	for i, by := range []peer.ID{executortest.Buyer, executortest.Buyer, evil} {
		r.push(by, market.LeaseID{byte(i + 1)}, image, parts)
	}
	names := l.named()
	if len(names) != 3 || names[0] != names[1] || names[0] == names[2] {
		t.Errorf("the engine knows the images as %q", names)
	}
	if files.asked(executortest.Buyer) != 3 || files.asked(evil) != 3 {
		t.Errorf("its buyer was asked %d times, the other one %d times; want 3 each",
			files.asked(executortest.Buyer), files.asked(evil))
	}
	for _, name := range names {
		if runtime.CheckImage(name) != nil || len(l.loaded[name]) != len("manifestconfiglayer") {
			t.Errorf("%s has %q", name, l.loaded[name])
		}
	}
}

// A part of another size than its buyer says ends the execution for the image's sake, which no other provider repeats.
func TestAttackPartOfAnotherSize(t *testing.T) {
	t.Parallel()
	r, _, _ := newLoading(t)
	image, parts := r.parts("manifest", "config", "layer")
	for n, size := range []uint64{2, 90, 1 << 35} {
		parts[2].Size = size
		s := r.push(executortest.Buyer, market.LeaseID{byte(n + 1)}, image, parts)
		if s.State != nodepb.ExecState_EXEC_STATE_FAILED || s.Reason != protocol.ReasonImage || !strings.Contains(s.Message, "size: got") {
			t.Errorf("%d bytes: ended as %v", size, s)
		}
	}
}

// Parts are needed until the engine has the image. After that the store of blobs may remove them.
func TestPartsAreNeededForTheLoad(t *testing.T) {
	t.Parallel()
	r, l, _ := newLoading(t)
	l.wait = make(chan struct{})
	image, parts := r.parts("manifest", "config", "layer")
	w := &nodepb.Workload{Runtime: "docker", Image: image, ImageParts: parts, KeepMillis: uint64(time.Hour / time.Millisecond)}
	e := r.Must(market.LeaseID{1}, 1, w)
	count := func() (n int) {
		needed := hooks.Needed([]*executor.Execution{e})
		for _, p := range parts {
			if c, err := workload.CID(p); err == nil && needed[c] {
				n++
			}
		}
		return n
	}
	if got := count(); got != 3 {
		t.Errorf("%d of 3 parts are needed before", got)
	}
	close(l.wait)
	r.Await(e)
	if got := count(); got != 0 {
		t.Errorf("%d of 3 parts are needed after", got)
	}
}
