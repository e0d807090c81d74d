package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/blob/blobpb"
	"github.com/starling-network/starling/p2p/blob/chunks"
	"github.com/starling-network/starling/p2p/blob/swarm"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// origin is a Shared that has data, except for what a test changes.
type origin struct {
	data []byte
	has  chunks.Set                                                 // nil: all
	part func(ctx context.Context, offset int64, into []byte) error // nil: data
	list func(size int64, sums []byte) (int64, []byte, error)       // nil: those of data

	mu     sync.Mutex
	asked  []int64
	opened bool
}

func (o *origin) Open(_ context.Context, _ cid.Cid, offset, _ int64) (io.ReadCloser, int64, error) {
	o.opened = true
	return io.NopCloser(bytes.NewReader(o.data[min(offset, int64(len(o.data))):])), int64(len(o.data)), nil
}

func (o *origin) List(context.Context, cid.Cid, int64) (int64, []byte, error) {
	var sums []byte
	for part := range slices.Chunk(o.data, mib) {
		sums = append(sums, Sum(part).Hash()[2:]...)
	}
	if o.list != nil {
		return o.list(int64(len(o.data)), sums)
	}
	return int64(len(o.data)), sums, nil
}

func (o *origin) Part(ctx context.Context, _ cid.Cid, _, offset int64, into []byte) ([]byte, error) {
	if len(into) == 0 {
		return o.has, nil
	}
	o.mu.Lock()
	o.asked = append(o.asked, offset/mib)
	o.mu.Unlock()
	if o.part != nil {
		return o.has, o.part(ctx, offset, into)
	}
	copy(into, o.data[offset:])
	return o.has, nil
}

// chunks are those that were asked of it.
func (o *origin) chunks() []int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

// slowly is an origin that needs a second for each chunk.
func slowly(data []byte) *origin {
	o := &origin{data: data}
	o.part = func(ctx context.Context, offset int64, into []byte) error {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		copy(into, data[offset:])
		return nil
	}
	return o
}

// A fellow that sends other bytes is found out by its first chunk and not asked again.
func TestAttackPoisonedFellow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		data := noise(20 * mib)
		poisoned := &origin{data: noise(20*mib + 1), part: func(_ context.Context, _ int64, into []byte) error {
			clear(into)
			return nil
		}}
		receives(t, opened(t, 1<<30), Swarm{Shared: slowly(data), Fellows: []swarm.Supplier{poisoned}}, Sum(data), data)
		if n := len(poisoned.chunks()); n == 0 || n > 2 {
			t.Errorf("it was asked for %d chunks, want 1 or 2", n)
		}
	})
}

// A fellow that takes every request and sends nothing delays a chunk, and is given up after a few.
func TestAttackStallingFellow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		data := noise(40 * mib)
		stalling := &origin{data: data, part: func(ctx context.Context, _ int64, _ []byte) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		begun := time.Now()
		receives(t, opened(t, 1<<30), Swarm{Shared: slowly(data), Fellows: []swarm.Supplier{stalling}}, Sum(data), data)
		// The source alone needs 10 seconds: 4 chunks in each.
		if took := time.Since(begun); took > 25*time.Second {
			t.Errorf("it took %v", took)
		}
		if n := len(stalling.chunks()); n == 0 || n > 5 {
			t.Errorf("it was asked for %d chunks, want 1 to %d", n, 5)
		}
	})
}

// A fellow that says that it has every chunk, and refuses each, is asked ever more rarely.
func TestAttackRefusingFellow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		data := noise(40 * mib)
		for _, refusal := range []error{swarm.ErrNothing, swarm.ErrBusy} {
			refusing := &origin{data: data, part: func(context.Context, int64, []byte) error { return refusal }}
			receives(t, opened(t, 1<<30), Swarm{Shared: slowly(data), Fellows: []swarm.Supplier{refusing}}, Sum(data), data)
			if n := len(refusing.chunks()); n == 0 || n > 16 {
				t.Errorf("%v: it was asked for %d chunks in about 10 s", refusal, n)
			}
		}
	})
}

// A source with a false list harms its own blob alone: chunks that fit the list are not the blob, and nothing is kept.
func TestAttackFalseList(t *testing.T) {
	t.Parallel()
	data, lie := noise(5*mib), noise(5*mib)
	lie[3*mib]++
	c := Sum(data)
	to := opened(t, 1<<30)
	liar := &origin{data: lie}
	if _, err := to.Receive(t.Context(), Swarm{Shared: liar, Fellows: []swarm.Supplier{&origin{data: lie}}}, c, 1<<30, []string{"job"}, nil); !errors.Is(err, ErrDigest) {
		t.Errorf("got %v, want ErrDigest", err)
	}
	if parts, err := to.partials(); to.Has(c) || to.Used() != 0 || to.Brought(c, "job") || len(parts) > 0 || err != nil {
		t.Errorf("%d bytes in use, %d partial files, %v", to.Used(), len(parts), err)
	}
	// An honest source is not harmed by what the other left, nor by a fellow that follows the false list.
	receives(t, to, Swarm{Shared: &origin{data: data}, Fellows: []swarm.Supplier{&origin{data: lie}}}, c, data)
}

// A list of more chunks than its blob has, of a blob of more than the limit, or of a negative size, takes no memory.
func TestAttackHugeList(t *testing.T) {
	t.Parallel()
	data := noise(2 * mib)
	for name, test := range map[string]struct {
		size int64
		sums int
		want error
	}{
		"a million chunks": {int64(len(data)), 32_000_000, ErrDigest},
		"too few":          {int64(len(data)), 32, ErrDigest},
		"ragged":           {int64(len(data)), 65, ErrDigest},
		"too large":        {1 << 31, 64, ErrTooLarge},
		"negative":         {-1, 0, ErrTooLarge},
	} {
		to := opened(t, 1<<30)
		o := &origin{data: data, list: func(int64, []byte) (int64, []byte, error) {
			return test.size, make([]byte, test.sums), nil
		}}
		_, err := to.Receive(t.Context(), Swarm{Shared: o, Fellows: []swarm.Supplier{&origin{data: data}}}, Sum(data), 1<<30, nil, nil)
		if !errors.Is(err, test.want) || to.Used() != 0 || len(o.chunks()) > 0 {
			t.Errorf("%s: %v, %d bytes in use, %d chunks asked for", name, err, to.Used(), len(o.chunks()))
		}
	}
}

// A peer's answers on the wire: a list of a million chunks, an endless chunk, one of another blob, a false set of chunks.
func TestAttackChunksOnTheWire(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	answers := make(chan []byte, 1)
	hosts[1].SetStreamHandler("/starling/blob/1/test", func(s network.Stream) {
		_, _ = s.Read(make([]byte, 256))
		_, _ = s.Write(<-answers)
		_ = s.Close()
	})
	p2ptest.ConnectAll(t, hosts...)
	p := Peer{hosts[0], p2ptest.Network, hosts[1].ID()}
	c := Sum([]byte("x"))
	four := []byte{0, 100, 0, 0, 0, 2, 0x08, 4} // head with size 4
	length := func(n byte) []byte { return []byte{0, 0, 0, 0, 0, 0, 0, n} }
	list := func() error { _, _, err := p.List(t.Context(), c, 1<<30); return err }
	part := func() error { _, err := p.Part(t.Context(), c, 4, 0, make([]byte, 4)); return err }
	for name, test := range map[string]struct {
		answer []byte
		ask    func() error
		want   error
	}{
		"list of a million":  {slices.Concat(four, []byte{0, 0, 0, 0, 2, 0, 0, 0}), list, stream.ErrBadReply},
		"list of a huge one": {[]byte{0, 100, 0, 0, 0, 6, 0x08, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0}, list, ErrTooLarge},
		"cut list":           {slices.Concat(four, length(32), []byte("short")), list, stream.ErrUnreachable},
		"whole blob":         {slices.Concat(four, length(4), []byte("blob")), list, stream.ErrBadReply},
		"endless chunk":      {slices.Concat(four, []byte{0x3f, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 4096)), part, stream.ErrBadReply},
		"short chunk":        {slices.Concat(four, length(3), []byte("tru")), part, stream.ErrBadReply},
		"cut chunk":          {slices.Concat(four, length(4), []byte("tr")), part, stream.ErrUnreachable},
		"another blob":       {slices.Concat([]byte{0, 100, 0, 0, 0, 2, 0x08, 5}, length(4), []byte("true")), part, stream.ErrBadReply},
		"many chunks":        {slices.Concat([]byte{0, 100, 0, 0, 0, 6, 0x08, 4, 0x12, 2, 1, 1}, length(4), []byte("true")), part, stream.ErrBadReply},
	} {
		answers <- test.answer
		if err := test.ask(); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
}

// A fellow reads a blob or its list only if its holder brought it, whatever blobs are there. It learns nothing else: all
// refusals are the same.
func TestAttackForeignBlob(t *testing.T) {
	t.Parallel()
	s := opened(t, 1<<30)
	data := noise(2 * mib)
	c, _, err := s.Put(t.Context(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Bring(c, "victim"); err != nil {
		t.Fatal(err)
	}
	v := &server{s, func(peer.ID, cid.Cid) bool { return false }, &helpers{holder: "evil", peers: []peer.ID{"f"}}}
	arriving := Sum([]byte("arriving"))
	defer s.arriving.announce(arriving, &arrival{size: mib, holders: []string{"victim"}, have: chunks.All(1)})()
	refusal := func(from peer.ID, req *blobpb.Request) string {
		_, _, _, err := v.answer(t.Context(), from, req)
		var no *stream.Refused
		if !errors.As(err, &no) {
			t.Errorf("%v from %q: got %v, want a refusal", req, from, err)
			return ""
		}
		return no.Error()
	}
	seen := map[string]bool{}
	for _, c := range []cid.Cid{c, arriving, Sum([]byte("absent"))} {
		for _, from := range []peer.ID{"f", "stranger"} {
			seen[refusal(from, &blobpb.Request{Cid: c.Bytes()})] = true
			seen[refusal(from, &blobpb.Request{Cid: c.Bytes(), Part: &blobpb.Request_Length{}})] = true
			seen[refusal(from, &blobpb.Request{Cid: c.Bytes(), Part: &blobpb.Request_List{List: true}})] = true
		}
	}
	if len(seen) != 1 {
		t.Errorf("refusals differ: %v", seen)
	}
	if err := s.Bring(c, "evil"); err != nil { // it has proved that it has the blob
		t.Fatal(err)
	}
	_, body, n, err := v.answer(t.Context(), "f", &blobpb.Request{Cid: c.Bytes()})
	if err != nil || n != int64(len(data)) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	body.Close()
	_, body, n, err = v.answer(t.Context(), "f", &blobpb.Request{Cid: c.Bytes(), Part: &blobpb.Request_List{List: true}})
	if err != nil || n != 2*32 {
		t.Fatalf("its list: %d bytes, %v", n, err)
	}
	body.Close()
}

// Of a blob that is still coming, a fellow gets the chunks that were verified, and not a byte more.
func TestAttackUnverifiedBytes(t *testing.T) {
	t.Parallel()
	s := opened(t, 1<<30)
	c := Sum([]byte("x"))
	f, err := openPartial(s, c)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(noise(3*mib), 0); err != nil {
		t.Fatal(err)
	}
	a := &arrival{size: 3*mib + 5, holders: []string{"job"}, have: chunks.New(4)}
	a.add(1)
	defer s.arriving.announce(c, a)()
	v := &server{s, func(peer.ID, cid.Cid) bool { return false }, &helpers{holder: "job", peers: []peer.ID{"f"}}}
	for name, test := range map[string]struct {
		offset, length uint64
		ok             bool
	}{
		"verified": {mib, mib, true}, "inside": {mib + 7, 9, true}, "nothing": {0, 0, true}, "before": {mib - 1, mib, false},
		"behind": {mib, mib + 1, false}, "end": {3 * mib, 5, false}, "beyond": {3 * mib, 6, false}, "far": {1 << 63, 1, false},
		"overflow": {mib, 1<<64 - 1, false},
	} {
		head, body, n, err := v.answer(t.Context(), "f", &blobpb.Request{
			Cid: c.Bytes(), Offset: test.offset, Part: &blobpb.Request_Length{Length: test.length},
		})
		if (err == nil) != test.ok || err == nil && (n != int64(test.length) || !bytes.Equal(head.Chunks, []byte{2})) {
			t.Errorf("%s: %d bytes, %v, %v", name, n, head, err)
		}
		if body != nil {
			body.Close()
		}
	}
	for name, req := range map[string]*blobpb.Request{
		"whole": {Cid: c.Bytes()}, "list": {Cid: c.Bytes(), Part: &blobpb.Request_List{List: true}},
	} {
		if _, _, _, err := v.answer(t.Context(), "f", req); err == nil {
			t.Errorf("the %s was sent", name)
		}
	}
}

// A fellow sees that a blob comes that is verified at its end, and gets none of it before.
func TestAttackUnverifiedStream(t *testing.T) {
	t.Parallel()
	s := opened(t, 1<<30)
	data := noise(3 * mib)
	c := Sum(data)
	v := &server{s, func(peer.ID, cid.Cid) bool { return false }, &helpers{holder: "job", peers: []peer.ID{"f"}}}
	ask := func(part *blobpb.Request_Length) (*blobpb.Head, error) {
		head, body, _, err := v.answer(t.Context(), "f", &blobpb.Request{Cid: c.Bytes(), Part: part})
		if body != nil {
			body.Close()
		}
		return head, err
	}
	half := halfway{data, func() {
		head, err := ask(&blobpb.Request_Length{})
		if err != nil || head.Size != 3*mib || !bytes.Equal(head.Chunks, []byte{0}) {
			t.Errorf("on its way: %v, %v", head, err)
		}
		if _, err := ask(&blobpb.Request_Length{Length: 1}); err == nil {
			t.Error("a byte was sent")
		}
	}}
	if _, err := s.Receive(t.Context(), half, c, 1<<30, []string{"job"}, nil); err != nil {
		t.Fatal(err)
	}
	if head, err := ask(&blobpb.Request_Length{Length: 1}); err != nil || head.Chunks != nil {
		t.Errorf("afterwards: %v, %v", head, err)
	}
}

// halfway is a source that calls a function after half of its data.
type halfway struct {
	data []byte
	then func()
}

func (h halfway) Open(context.Context, cid.Cid, int64, int64) (io.ReadCloser, int64, error) {
	rest := &late{r: bytes.NewReader(h.data[len(h.data)/2:]), then: sync.OnceFunc(h.then)}
	return io.NopCloser(io.MultiReader(bytes.NewReader(h.data[:len(h.data)/2]), rest)), int64(len(h.data)), nil
}

// late is a reader that calls a function first.
type late struct {
	r    io.Reader
	then func()
}

func (l *late) Read(p []byte) (int, error) {
	l.then()
	return l.r.Read(p)
}

// A spared source is asked for what no fellow has. Fellows that stall, refuse, or are slow cost a known time.
func TestAttackSparedSource(t *testing.T) {
	t.Parallel()
	const n = 40
	data := noise(n * mib)
	paced := func(data []byte, each time.Duration) *origin {
		return &origin{data: data, part: func(ctx context.Context, offset int64, into []byte) error {
			select {
			case <-time.After(each):
			case <-ctx.Done():
			}
			copy(into, data[offset:])
			return ctx.Err()
		}}
	}
	half := chunks.New(n)
	for i := range n / 2 {
		half.Add(2 * i)
	}
	halved, empty := paced(data, 20*time.Millisecond), paced(data, time.Hour)
	halved.has, empty.has = half, chunks.New(n)
	for name, test := range map[string]struct {
		fellow   *origin
		from, to int           // chunks from the source
		within   time.Duration // the source needs 10 ms for a chunk
	}{
		"has all":  {paced(data, 20*time.Millisecond), 0, 0, time.Second},
		"has half": {halved, n / 2, n / 2, 5 * time.Second},
		"stalls":   {paced(data, time.Hour), n, n, 8 * time.Second},
		"lies":     {paced(noise(n*mib-1), time.Millisecond), n, n, 3 * time.Second},
		"is slow":  {paced(data, 1900*time.Millisecond), n / 2, n - 6, 14 * time.Second},
		"has none": {empty, n, n, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			source := paced(data, 10*time.Millisecond)
			begun := time.Now()
			receives(t, opened(t, 1<<30), Swarm{Shared: source, Fellows: []swarm.Supplier{test.fellow}, Spare: true}, Sum(data), data)
			took, got := time.Since(begun), len(source.chunks())
			if got < test.from || got > test.to || took > test.within || source.opened {
				t.Errorf("a fellow that %s: %d chunks of the source in %v, want %d to %d within %v", name, got, took, test.from, test.to, test.within)
			}
		})
	}
}
