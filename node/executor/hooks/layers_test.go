package hooks_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/ipfs/go-cid"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
)

// sharing is boxes that pull images of some layers through others.
type sharing struct {
	*boxes
	layers []memory

	mu    sync.Mutex
	via   int // pulls through others
	plain int
	read  map[string]bool // whether a layer came through them, by digest
}

func (s *sharing) Pull(context.Context, string, *runtime.RegistryAuth, func(done, total int64)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plain++
	return nil
}

func (s *sharing) PullVia(ctx context.Context, _ string, via runtime.Via, _ func(done, total int64)) error {
	var all []runtime.Layer
	for _, m := range s.layers {
		all = append(all, m.layer())
	}
	via.Begin(ctx, all)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.via++
	for i, l := range all {
		content := via.Open(ctx, l)
		s.read[l.Digest] = content != nil
		if content == nil {
			continue
		}
		got, err := io.ReadAll(content)
		content.Close()
		if err != nil || !bytes.Equal(got, s.layers[i]) {
			return fmt.Errorf("layer %s: other bytes, or %w", l.Digest, err)
		}
	}
	return nil
}

// memory is a layer in a registry.
type memory []byte

func (m memory) layer() runtime.Layer {
	c := blob.Sum(m)
	h, _ := workload.Content(c)
	return runtime.Layer{Digest: hex.EncodeToString(h[:]), Size: int64(len(m)), From: m}
}

func (m memory) Name() string { return "https://registry.example/" + fmt.Sprint(len(m)) }

func (m memory) Read(_ context.Context, offset, length int64) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(m[offset : offset+length])), nil
}

// carried are files that take blobs from their origins. The layer of one length is not to be had.
type carried struct {
	*executortest.Files
	blobs *blob.Store
	gone  int64
}

func (f carried) Obtain(ctx context.Context, at workload.Places, c cid.Cid, most int64) error {
	if at.Origin == nil || at.Size != most || len(at.Fellows) == 0 || at.Size == f.gone {
		return blob.ErrNotFound
	}
	_, err := f.blobs.Receive(ctx, at.Origin, c, most, []string{"peer"}, nil)
	return err
}

// newSharing is a rig whose boxes share layers.
func newSharing(t *testing.T, gone int64, layers ...memory) (*rig, *sharing) {
	r := newRig(t, map[string]guest.Program{"train": executortest.Wait})
	r.Stop()
	s := &sharing{boxes: r.boxes, layers: layers, read: map[string]bool{}}
	r.Runtimes["docker"] = s
	store, err := blob.OpenStore(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	r.hooks.Blobs, r.hooks.Files = store, carried{r.Files, store, gone}
	r.Hooks = hooks.All(r.hooks, noNetworks{}, nil)
	r.Start()
	return r, s
}

// The large layers of a public image come through the store of files, where the job's providers may read them until its
// end, and no others. A layer that is not to be had there comes from the registry.
func TestSharedLayers(t *testing.T) {
	t.Parallel()
	one, two := executortest.Owner.Key(), testKey.Key()
	large, gone, small := memory(make([]byte, 4<<20)), memory(make([]byte, 4<<20+1)), memory(make([]byte, 4<<20-1))
	r, s := newSharing(t, int64(len(gone)), large, gone, small)
	e := r.must(market.LeaseID{1}, &nodepb.Workload{Fellows: [][]byte{one[:], two[:]}})
	r.Running(e)
	if n := r.Files.Joined(); n != 4 || s.via != 1 || s.plain != 0 {
		t.Errorf("%d rights, want 2 of each fellow; %d pulls through others, %d plain", n, s.via, s.plain)
	}
	for _, m := range s.layers {
		if want := len(m) == len(large); s.read[m.layer().Digest] != want {
			t.Errorf("layer of %d bytes through the store: want %v", len(m), want)
		}
	}
	r.End(market.LeaseID{1}, 0)
	r.Await(e)
	if n := r.Files.Joined(); n != 0 {
		t.Errorf("%d rights after the end", n)
	}
	dropped := r.Files.Dropped()
	if dropped[blob.Sum(large)] != 1 || dropped[blob.Sum(small)] != 0 {
		t.Errorf("dropped %v", dropped)
	}
}

// An image with credentials is pulled for this execution alone: no other provider may read a layer of it. So is one of
// a job without other providers.
func TestAttackPrivateLayers(t *testing.T) {
	t.Parallel()
	r, s := newSharing(t, 0, make([]byte, 4<<20))
	l := market.LeaseID{1}
	plain, err := proto.Marshal(&nodepb.Secrets{RegistryUsername: "ada", RegistryPassword: "hush"})
	if err != nil {
		t.Fatal(err)
	}
	box, err := sealed.Seal(testKey.Key(), protocol.LeaseSecrets("test", l), plain)
	if err != nil {
		t.Fatal(err)
	}
	key := executortest.Owner.Key()
	r.Running(r.must(l, &nodepb.Workload{Sealed: box, Fellows: [][]byte{key[:]}}))
	r.Running(r.must(market.LeaseID{2}, &nodepb.Workload{}))
	if n := r.Files.Joined(); n != 0 || s.via != 0 || s.plain != 2 {
		t.Errorf("%d rights, %d pulls through others, %d plain", n, s.via, s.plain)
	}
	r.End(l, 0)
	r.End(market.LeaseID{2}, 0)
}
