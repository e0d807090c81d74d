package ipfs

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	dagpb "github.com/ipfs/boxo/ipld/merkledag/pb"
	unixfspb "github.com/ipfs/boxo/ipld/unixfs/pb"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
	"google.golang.org/protobuf/proto"
)

// lab is a gateway with the blocks that a test puts there.
type lab struct {
	*httptest.Server
	t  testing.TB
	mu sync.Mutex

	blocks map[string][]byte
	asked  int
	serve  func(w http.ResponseWriter, req *http.Request) bool // is optional; reports whether it answered
}

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{t: t, blocks: map[string][]byte{}}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		l.mu.Lock()
		l.asked++
		b, ok := l.blocks[strings.TrimPrefix(req.URL.Path, "/ipfs/")]
		l.mu.Unlock()
		switch {
		case l.serve != nil && l.serve(w, req):
		case !ok || req.URL.RawQuery != "format=raw" || req.Header.Get("Accept") != "application/vnd.ipld.raw":
			http.NotFound(w, req)
		default:
			_, _ = w.Write(b)
		}
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *lab) client() Client { return Client{Gateway: l.URL} }

// put stores a block.
func (l *lab) put(codec uint64, b []byte) cid.Cid {
	l.t.Helper()
	id, err := cid.V1Builder{Codec: codec, MhType: multihash.SHA2_256}.Sum(b)
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocks[id.String()] = b
	return id
}

func (l *lab) raw(text string) part { return part{id: l.put(cid.Raw, []byte(text)), size: len(text)} }

// part is a link of a node that a test makes.
type part struct {
	name string
	id   cid.Cid
	size int
}

// node stores a node with links.
func (l *lab) node(data *unixfspb.Data, parts ...part) cid.Cid {
	l.t.Helper()
	inner, err := proto.Marshal(data)
	if err != nil {
		l.t.Fatal(err)
	}
	outer := &dagpb.PBNode{Data: inner}
	for _, p := range parts {
		outer.Links = append(outer.Links, &dagpb.PBLink{Hash: p.id.Bytes(), Name: proto.String(p.name), Tsize: proto.Uint64(1)})
	}
	b, err := proto.Marshal(outer)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.put(cid.DagProtobuf, b)
}

// file stores a node of a file, with data before its parts.
func (l *lab) file(data string, parts ...part) part {
	size := len(data)
	d := &unixfspb.Data{Type: unixfspb.Data_File.Enum(), Data: []byte(data)}
	for _, p := range parts {
		d.Blocksizes = append(d.Blocksizes, uint64(p.size))
		size += p.size
	}
	d.Filesize = proto.Uint64(uint64(size))
	return part{id: l.node(d, parts...), size: size}
}

func (l *lab) dir(entries ...part) part {
	return part{id: l.node(&unixfspb.Data{Type: unixfspb.Data_Directory.Enum()}, entries...)}
}

func (l *lab) shard(width uint64, entries ...part) part {
	return part{id: l.node(&unixfspb.Data{Type: unixfspb.Data_HAMTShard.Enum(), Fanout: proto.Uint64(width)}, entries...)}
}

func named(name string, p part) part {
	p.name = name
	return p
}

// find finds a file or directory of the gateway.
func (l *lab) find(p part, path ...string) (Found, error) {
	return l.client().Find(l.t.Context(), Name{Root: p.id, Path: path})
}

// text reads a file.
func (l *lab) text(p part, path ...string) (string, error) {
	f, err := l.find(p, path...)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = f.Write(l.t.Context(), &b, 1<<20)
	return b.String(), err
}

// save reads a directory, and returns its files.
func (l *lab) save(p part, limit int64) (map[string]string, error) {
	f, err := l.find(p)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(l.t.TempDir(), "in")
	if err := os.Mkdir(dir, 0o700); err != nil {
		l.t.Fatal(err)
	}
	if _, err = f.Save(l.t.Context(), dir, limit); err != nil {
		beside, rerr := os.ReadDir(filepath.Dir(dir))
		if rerr != nil || len(beside) != 1 {
			l.t.Errorf("beside the directory: %v, %v", beside, rerr)
		}
		return nil, err
	}
	out := map[string]string{}
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := fs.ReadFile(os.DirFS(dir), path)
		out[path] = string(b)
		return err
	})
	return out, err
}

// Blocks that Kubo made have its CIDs: a file of one block, and an empty directory.
func TestKubo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for id, x := range map[string]struct {
		block, text string
		dir         bool
	}{
		"QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o": {"0a120802120c68656c6c6f20776f726c640a180c", "hello world\n", false},
		"QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn": {"0a020801", "", true},
		"QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH": {"0a0408021800", "", false},
	} {
		b, err := hex.DecodeString(x.block)
		if err != nil {
			t.Fatal(err)
		}
		l.blocks[id] = b
		n, err := Parse(Scheme + id)
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.client().Find(t.Context(), n)
		if err != nil || f.Dir != x.dir {
			t.Errorf("%s: %+v, %v", id, f, err)
			continue
		}
		var got bytes.Buffer
		if !f.Dir {
			err = f.Write(t.Context(), &got, 100)
		}
		if err != nil || got.String() != x.text {
			t.Errorf("%s: got %q, %v, want %q", id, got.String(), err, x.text)
		}
	}
}

// Files of many blocks and levels, and directories with shards, are as they were made.
func TestRead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var parts []part
	want := "0"
	for i := range 30 {
		text := strings.Repeat(fmt.Sprint(i), 50)
		parts, want = append(parts, l.raw(text)), want+text
	}
	tree := l.file("0", l.file("", parts[:10]...), l.file("", parts[10:29]...), parts[29])
	if got, err := l.text(tree); err != nil || got != want {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
	}
	if f, err := l.find(tree); err != nil || !errors.Is(f.Write(t.Context(), new(bytes.Buffer), int64(len(want)-1)), ErrLarge) {
		t.Errorf("a file above the limit: %v", err)
	}
	sharded := l.shard(256, named("00a.bin", l.raw("a")), named("FF", l.shard(256, named("01b c.bin", l.raw("b")))))
	root := l.dir(named("big", tree), named("sub", l.dir(named("x", l.raw("x")), named("none", l.dir()))), named("many", sharded))
	got, err := l.save(root, 1<<20)
	if want := map[string]string{"big": want, "sub/x": "x", "many/a.bin": "a", "many/b c.bin": "b"}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := l.text(root, "many", "b c.bin"); err != nil || got != "b" {
		t.Errorf("a file of a shard: %q, %v", got, err)
	}
	for _, path := range [][]string{{"other"}, {"sub", "y"}, {"big", "x"}, {"many", "c"}} {
		if _, err := l.text(root, path...); !errors.Is(err, ErrAbsent) {
			t.Errorf("%v: %v", path, err)
		}
	}
	if _, err := l.save(root, int64(len(want))); !errors.Is(err, ErrLarge) {
		t.Errorf("a directory above the limit: %v", err)
	}
}

// Names are CIDs of files with SHA-256 and clean paths; String is read back.
func TestName(t *testing.T) {
	t.Parallel()
	const v0, v1 = "QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o", "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
	for text, base := range map[string]string{v0: v0, v1: v1, v1 + "/": v1, v0 + "/a/b.bin": "b.bin", v0 + "/a%20b/c%2Cd": "c,d"} {
		n, err := Parse(Scheme + text)
		if err != nil || n.Base() != base {
			t.Errorf("%s: %+v, %v", text, n, err)
			continue
		}
		if again, err := Parse(n.String()); err != nil || again.String() != n.String() {
			t.Errorf("%s: read back %s, %v", text, again, err)
		}
	}
	sha512 := cid.NewCidV1(cid.Raw, must(multihash.Sum(nil, multihash.SHA2_512, -1))).String()
	identity := cid.NewCidV1(cid.Raw, must(multihash.Sum([]byte("x"), multihash.IDENTITY, -1))).String()
	json := cid.NewCidV1(cid.DagJSON, must(multihash.Sum(nil, multihash.SHA2_256, -1))).String()
	for _, text := range []string{"", "x", sha512, identity, json, v1 + "//a", v1 + "/../a", v1 + "/a/..", v1 + "/a%2Fb", v1 + "/%00", v1 + "/%", v1 + "?format=car",
		v1 + "/a#b", v1 + "/" + strings.Repeat("a", 256), v1 + strings.Repeat("/a", maxDepth+1), v1 + "/.", v1 + "/%E2%80%A8"} {
		if n, err := Parse(Scheme + text); !errors.Is(err, ErrName) {
			t.Errorf("%s: %+v, %v", text, n, err)
		}
	}
}

func must(h multihash.Multihash, err error) multihash.Multihash {
	if err != nil {
		panic(err)
	}
	return h
}

// A gateway of the environment is a host.
func TestFromEnv(t *testing.T) {
	t.Parallel()
	for at, ok := range map[string]bool{"": true, "https://ipfs.example": true, "http://127.0.0.1:8080/": true, "ipfs.example": false,
		"https://u:p@ipfs.example": false, "https://ipfs.example/ipfs": false, "ftp://ipfs.example": false, "https://": false} {
		if c, err := FromEnv(func(string) string { return at }); (err == nil) != ok {
			t.Errorf("%s: %+v, %v", at, c, err)
		}
	}
}

// A gateway that is busy is asked again.
func TestBusy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	n := 0
	l.serve = func(w http.ResponseWriter, _ *http.Request) bool {
		if n++; n < tries {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		return n < tries
	}
	if got, err := l.text(l.raw("x")); err != nil || got != "x" {
		t.Errorf("got %q, %v", got, err)
	}
}

// FuzzDecode: a block of a stranger is an error or a node within bounds, and never a panic.
func FuzzDecode(f *testing.F) {
	l := newLab(f)
	l.file("data", l.raw("a"), l.raw("b"))
	l.dir(named("x", l.raw("x")))
	l.shard(256, named("00x", l.raw("x")))
	for _, b := range l.blocks {
		f.Add(b)
	}
	id := cid.NewCidV1(cid.DagProtobuf, must(multihash.Sum(nil, multihash.SHA2_256, -1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := decode(id, b)
		if err != nil {
			return
		}
		size := int64(len(n.data))
		for _, l := range n.links {
			if err := readable(l.id); err != nil || n.kind == file && l.size <= 0 {
				t.Errorf("link %+v: %v", l, err)
			}
			size += l.size
		}
		if n.kind == file && size != n.size {
			t.Errorf("size: got %d, want %d", n.size, size)
		}
	})
}
