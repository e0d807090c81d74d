package ipfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	unixfspb "github.com/ipfs/boxo/ipld/unixfs/pb"
	"google.golang.org/protobuf/proto"
)

// TestAttackOtherBytes: a gateway sends other bytes than those of the CID, for the root, a part or an entry.
func TestAttackOtherBytes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a, b := l.raw("the first part"), l.raw("the other part")
	root := l.file("", a, b)
	dir := l.dir(named("x", root))
	for _, bad := range []part{root, b} {
		good := l.blocks[bad.id.String()]
		for _, other := range [][]byte{nil, append(bytes.Clone(good), 0), good[1:], l.blocks[a.id.String()]} {
			l.blocks[bad.id.String()] = other
			if got, err := l.text(root); !errors.Is(err, ErrBlock) || strings.Contains(got, "other") {
				t.Errorf("%q in place of %q: %q, %v", other, good, got, err)
			}
			if _, err := l.save(dir, 1<<20); !errors.Is(err, ErrBlock) {
				t.Errorf("%q in place of %q, in a directory: %v", other, good, err)
			}
		}
		l.blocks[bad.id.String()] = good
	}
}

// TestAttackEndlessBlock: a gateway sends bytes without end in place of a block.
func TestAttackEndlessBlock(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var sent atomic.Int64
	l.serve = func(w http.ResponseWriter, req *http.Request) bool {
		for req.Context().Err() == nil && sent.Load() < 1<<30 {
			n, err := w.Write(make([]byte, 64<<10))
			if sent.Add(int64(n)); err != nil {
				break
			}
		}
		return true
	}
	if _, err := l.text(l.raw("x")); !errors.Is(err, ErrBlock) {
		t.Error(err)
	}
	l.Close() // the handler has ended
	if n := sent.Load(); n > 1<<28 {
		t.Errorf("%d bytes were sent", n)
	}
}

// TestAttackGatewayRedirects: a gateway leads to a server of the user's machine. Hosts below its own are followed.
func TestAttackGatewayRedirects(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var reached atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer other.Close()
	to := other.URL
	l.serve = func(w http.ResponseWriter, req *http.Request) bool {
		http.Redirect(w, req, to, http.StatusFound)
		return true
	}
	x := l.raw("x")
	host := strings.TrimPrefix(l.URL, "http://")
	for _, to = range []string{other.URL, "https://" + host, "http://u:p@" + host, "http://evil" + host, "file:///etc/passwd", l.URL} {
		if _, err := l.text(x); err == nil {
			t.Errorf("a redirect to %s was followed", to)
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d requests reached another server", n)
	}
}

// TestAttackNames: names of a directory's entries lead out of it, or are there twice.
func TestAttackNames(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	x := l.raw("x")
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc/passwd", "a/../../x", "x\x00", "x\n", "\xff", strings.Repeat("a", 256)} {
		for what, dir := range map[string]part{"a directory": l.dir(named(name, x)), "a shard": l.shard(256, named("00"+name, x))} {
			if name == "" && what == "a shard" {
				continue // the link of a shard below
			}
			if got, err := l.save(dir, 1<<20); !errors.Is(err, ErrForm) {
				t.Errorf("%s with %q: %q, %v", what, name, got, err)
			}
		}
	}
	for _, dir := range []part{l.dir(named("x", x), named("x", x)), l.dir(named("x", l.dir()), named("x", x)), l.shard(256, named("00x", x), named("01", l.shard(256, named("00x", x))))} {
		if got, err := l.save(dir, 1<<20); err == nil {
			t.Errorf("two entries of one name: %q", got)
		}
	}
	link := part{id: l.node(&unixfspb.Data{Type: unixfspb.Data_Symlink.Enum(), Data: []byte("/etc")})}
	if got, err := l.save(l.dir(named("x", link)), 1<<20); !errors.Is(err, ErrForm) {
		t.Errorf("a link: %q, %v", got, err)
	}
	if got, err := l.save(l.shard(256, named("0", x)), 1<<20); !errors.Is(err, ErrForm) {
		t.Errorf("a short name in a shard: %q, %v", got, err)
	}
	if got, err := l.save(l.shard(256, named("00", x)), 1<<20); !errors.Is(err, ErrForm) {
		t.Errorf("a file as a shard: %q, %v", got, err)
	}
}

// TestAttackDepth: the blocks of a file, the shards of a directory and directories lie in one another without end.
func TestAttackDepth(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	chain, shards, dirs := l.raw("x"), l.shard(2, named("0x", l.raw("x"))), l.dir()
	for range 1000 {
		chain, shards, dirs = l.file("", chain), l.shard(2, named("0", shards)), l.dir(named("d", dirs))
	}
	if got, err := l.text(chain); !errors.Is(err, ErrForm) {
		t.Errorf("a file: %q, %v", got, err)
	}
	for what, deep := range map[string]part{"shards": shards, "directories": dirs, "a file": l.dir(named("x", chain))} {
		if _, err := l.save(deep, 1<<20); !errors.Is(err, ErrForm) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := l.find(shards, "x"); !errors.Is(err, ErrForm) {
		t.Errorf("a path in shards: %v", err)
	}
	if l.asked > 10*maxDepth {
		t.Errorf("%d requests", l.asked)
	}
}

// TestAttackFanOut: a few blocks refer to each other so often that a file or directory has millions of them.
func TestAttackFanOut(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	wide := func(p part, of func(...part) part) part {
		all := make([]part, 0, 600)
		for i := range 600 {
			all = append(all, named(fmt.Sprint("d", i), p))
		}
		return of(all...)
	}
	data := func(parts ...part) part { return l.file("", parts...) }
	tiny := wide(wide(l.raw("x"), data), data)
	if f, err := l.find(tiny); err != nil || !errors.Is(f.Write(t.Context(), io.Discard, math.MaxInt64), ErrForm) {
		t.Errorf("a file of one byte a block: %+v, %v", f.Size, err)
	}
	f := tiny
	for range 3 {
		f = wide(f, data)
	}
	if found, err := l.find(f); err != nil || !errors.Is(found.Write(t.Context(), io.Discard, 1<<40), ErrLarge) {
		t.Errorf("a file of %d bytes: %v", found.Size, err)
	}
	empty := wide(wide(l.dir(), l.dir), l.dir)
	if _, err := l.save(empty, 1<<20); !errors.Is(err, ErrForm) && !errors.Is(err, ErrLarge) {
		t.Errorf("directories: %v", err)
	}
	if l.asked > 4_000 {
		t.Errorf("%d requests", l.asked)
	}
}

// Blocks of a file with other sizes than the file declares are refused.
func TestAttackSizes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	x := l.raw("12345")
	sized := func(size int) part { return part{id: x.id, size: size} }
	node := func(data *unixfspb.Data, parts ...part) part {
		data.Type = unixfspb.Data_File.Enum()
		return part{id: l.node(data, parts...)}
	}
	for what, p := range map[string]part{
		"a short part":     l.file("", sized(6)),
		"a long part":      l.file("", sized(4)),
		"a directory":      l.file("", part{id: l.dir().id, size: 1}),
		"no sizes":         node(&unixfspb.Data{}, x),
		"an empty part":    node(&unixfspb.Data{Blocksizes: []uint64{0}}, x),
		"an overflow":      node(&unixfspb.Data{Blocksizes: []uint64{math.MaxInt64, math.MaxInt64}}, x, x),
		"another total":    node(&unixfspb.Data{Blocksizes: []uint64{5}, Filesize: proto.Uint64(6)}, x),
		"metadata":         {id: l.node(&unixfspb.Data{Type: unixfspb.Data_Metadata.Enum()})},
		"a wide shard":     l.shard(1<<20, named("x", x)),
		"an odd shard":     l.shard(3, named("x", x)),
		"bytes of no node": {id: l.put(0x70, []byte("no node"))},
	} {
		if got, err := l.text(p); !errors.Is(err, ErrForm) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}
