package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/blob/blobpb"
	"github.com/starling-network/starling/p2p/blob/swarm"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

const mib = 1 << 20

func noise(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(data)
	return data
}

func opened(t testing.TB, max int64) *Store {
	t.Helper()
	s, err := OpenStore(t.TempDir(), max)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// helpers are fellows of a holder.
type helpers struct {
	holder string
	peers  []peer.ID
}

func (h *helpers) Of(p peer.ID, _ cid.Cid) []string {
	if slices.Contains(h.peers, p) {
		return []string{h.holder}
	}
	return nil
}

func (h *helpers) Enter() (func(), bool) { return func() {}, true }

// Peers that receive one blob at the same time over the network all end with the whole blob.
func TestSwarm(t *testing.T) {
	t.Parallel()
	const n, size = 4, 12*mib + 77
	hosts := p2ptest.Loopback(t, n+1)
	p2ptest.ConnectAll(t, hosts...)
	from := opened(t, 1<<30)
	data := noise(size)
	c, _, err := from.Put(t.Context(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(Serve(hosts[0], p2ptest.Network, from, nil, nil).Close)
	h := &helpers{holder: "job"}
	for _, p := range hosts[1:] {
		h.peers = append(h.peers, p.ID())
	}
	var wg sync.WaitGroup
	for i := 1; i <= n; i++ {
		to := opened(t, 1<<30)
		t.Cleanup(Serve(hosts[i], p2ptest.Network, to, func(peer.ID, cid.Cid) bool { return false }, h).Close)
		s := Swarm{Shared: Peer{hosts[i], p2ptest.Network, hosts[0].ID()}, Turn: i - 1}
		for j := 1; j <= n; j++ {
			if j != i {
				s.Fellows = append(s.Fellows, Peer{hosts[i], p2ptest.Network, hosts[j].ID()})
			}
		}
		wg.Go(func() { receives(t, to, s, c, data) })
	}
	wg.Wait()
}

// receives receives a blob into a store, and checks what came.
func receives(t *testing.T, to *Store, s Swarm, c cid.Cid, data []byte) {
	var last int64
	size := int64(len(data))
	fresh, err := to.Receive(t.Context(), s, c, size, []string{"job"}, func(done, total int64) {
		if done < last || total != size {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
	})
	if err != nil || !fresh || last != size || !to.Brought(c, "job") || to.Used() != size {
		t.Errorf("fresh %v, %v, progress %d, %d bytes in use", fresh, err, last, to.Used())
	}
	path, err := to.Path(c)
	if err != nil {
		t.Error(err)
		return
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Errorf("other bytes are stored: %v", err)
	}
	if l, err := to.lists.read(c, size); err != nil || !l.Matches(0, data[:min(len(data), mib)]) {
		t.Errorf("its list is not stored: %v", err)
	}
}

// near is a peer in the same process, whose line sends a chunk in a time.
type near struct {
	v    *server
	id   peer.ID // that asks it
	line *line
}

type line struct {
	free  chan struct{} // and no mutex: time goes on for those who wait
	chunk time.Duration
	sent  int64
}

func newLine(chunk time.Duration) *line { return &line{free: make(chan struct{}, 1), chunk: chunk} }

func (l *line) send(n int) {
	l.free <- struct{}{}
	defer func() { <-l.free }()
	l.sent += int64(n)
	time.Sleep(l.chunk)
}

func (p near) Open(context.Context, cid.Cid, int64, int64) (io.ReadCloser, int64, error) {
	return nil, 0, errors.New("the whole blob was asked for")
}

func (p near) List(ctx context.Context, c cid.Cid, _ int64) (int64, []byte, error) {
	head, body, _, err := p.v.answer(ctx, p.id, &blobpb.Request{Cid: c.Bytes(), Part: &blobpb.Request_List{List: true}})
	if err != nil {
		return 0, nil, err
	}
	sums, err := io.ReadAll(body)
	return int64(head.Size), sums, err
}

func (p near) Part(ctx context.Context, c cid.Cid, _, offset int64, into []byte) ([]byte, error) {
	head, body, _, err := p.v.answer(ctx, p.id, &blobpb.Request{
		Cid: c.Bytes(), Offset: uint64(offset), Part: &blobpb.Request_Length{Length: uint64(len(into))},
	})
	if err != nil {
		time.Sleep(time.Millisecond)
		return nil, swarm.ErrNothing
	}
	defer body.Close()
	if len(into) > 0 {
		p.line.send(len(into))
	} else {
		time.Sleep(time.Millisecond)
	}
	_, err = io.ReadFull(body, into)
	return head.Chunks, err
}

// Cold peers share what they have: the line of the source, which is the slow one, carries little more than one copy.
func TestSwarmSpares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, chunks = 4, 60
		data := noise(chunks * mib)
		from := opened(t, 1<<30)
		c, _, err := from.Put(t.Context(), bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		uplink := newLine(100 * time.Millisecond)
		h := &helpers{holder: "job"}
		var cold [n]near
		var stores [n]*Store
		for i := range n {
			id := peer.ID(rune('a' + i))
			h.peers = append(h.peers, id)
			stores[i] = opened(t, 1<<30)
			cold[i] = near{v: &server{stores[i], func(peer.ID, cid.Cid) bool { return false }, h}, line: newLine(10 * time.Millisecond)}
		}
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range n {
			s := Swarm{Shared: near{v: &server{s: from}, line: uplink}, Turn: i}
			for j := range n {
				if j != i {
					f := cold[j]
					f.id = h.peers[i]
					s.Fellows = append(s.Fellows, f)
				}
			}
			wg.Go(func() { receives(t, stores[i], s, c, data) })
		}
		wg.Wait()
		took, copies := time.Since(begun), float64(uplink.sent)/float64(len(data))
		t.Logf("the source sent %.2f copies, in %v", copies, took)
		if one := chunks * uplink.chunk; copies > 1.6 || took > one*16/10 {
			t.Errorf("the source sent %.2f copies in %v; want at most 1.6, and %v", copies, took, one*16/10)
		}
	})
}

// A receiver that was interrupted keeps the chunks that it had, wherever they are in the blob, and no others.
func TestSwarmResumes(t *testing.T) {
	t.Parallel()
	data := noise(6*mib + 5)
	c := Sum(data)
	to := opened(t, 1<<30)
	part := slices.Clone(data[:5*mib])
	clear(part[0:mib])
	part[3*mib] ^= 1
	if err := os.WriteFile(to.path("partial", c.String()), part, 0o600); err != nil {
		t.Fatal(err)
	}
	origin, fellow := &origin{data: data}, &origin{data: data}
	receives(t, to, Swarm{Shared: origin, Fellows: []swarm.Supplier{fellow}}, c, data)
	all := append(origin.chunks(), fellow.chunks()...)
	slices.Sort(all)
	if want := []int64{0, 3, 5, 6}; !slices.Equal(all, want) {
		t.Errorf("asked for chunks %v, want %v", all, want)
	}
}

// A blob that its source gives no list of is read from the source alone; so is one with a list of another blob.
func TestSwarmWithoutList(t *testing.T) {
	t.Parallel()
	data := noise(2*mib + 5)
	for name, lists := range map[string]func(int64, []byte) (int64, []byte, error){
		"none":   func(int64, []byte) (int64, []byte, error) { return 0, nil, &stream.Malformed{Reason: "no"} },
		"old":    func(int64, []byte) (int64, []byte, error) { return 0, nil, stream.ErrBadReply },
		"busy":   func(int64, []byte) (int64, []byte, error) { return 0, nil, errBusy },
		"absent": func(int64, []byte) (int64, []byte, error) { return 0, nil, stream.Refuse(CodeNotFound, "no") },
	} {
		to, c := opened(t, 1<<30), Sum(data)
		o := &origin{data: data, list: lists}
		_, err := to.Receive(t.Context(), Swarm{Shared: o, Fellows: []swarm.Supplier{&origin{data: data}}}, c, 1<<30, []string{"job"}, nil)
		alone := name == "none" || name == "old"
		if (err == nil) != alone || to.Has(c) != alone || to.Brought(c, "job") != alone || o.opened != alone {
			t.Errorf("%s: %v, opened %v", name, err, o.opened)
		}
	}
}

// A list is computed once, goes with its blob, and is not left behind by a crash.
func TestListStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := OpenStore(dir, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := s.Put(t.Context(), bytes.NewReader(noise(3*mib)))
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.lists.of(ended, c); err == nil {
		t.Error("a list was computed for nobody")
	}
	first, err := s.lists.of(t.Context(), c)
	if err != nil || len(first.Sums) != 3 {
		t.Fatalf("%d chunks, %v", len(first.Sums), err)
	}
	if again, err := s.lists.of(ended, c); err != nil || !bytes.Equal(again.Bytes(), first.Bytes()) {
		t.Errorf("a stored list: %v", err)
	}
	if err := os.WriteFile(s.lists.file(Sum([]byte("gone"))), first.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenStore(dir, 1<<30); err != nil {
		t.Fatal(err)
	}
	if lists, err := os.ReadDir(s.path("lists")); err != nil || len(lists) != 1 {
		t.Errorf("%d lists after a start, %v", len(lists), err)
	}
	if err := s.Remove(c); err != nil {
		t.Fatal(err)
	}
	if lists, err := os.ReadDir(s.path("lists")); err != nil || len(lists) != 0 {
		t.Errorf("%d lists without a blob, %v", len(lists), err)
	}
}
