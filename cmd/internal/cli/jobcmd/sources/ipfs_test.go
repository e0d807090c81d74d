package sources

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	dagpb "github.com/ipfs/boxo/ipld/merkledag/pb"
	unixfspb "github.com/ipfs/boxo/ipld/unixfs/pb"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/files/ipfs"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

// gateway is an IPFS gateway with a directory of one file, in two blocks. It serves the file's bytes too.
type gateway struct {
	root, file cid.Cid
	blocks     map[string][]byte
	text       string
	lies       bool // of other bytes than the CID's, in files
	blocksOnly bool
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{blocks: map[string][]byte{}, text: "the first part, the second part"}
	put := func(codec uint64, b []byte) []byte {
		id, err := cid.V1Builder{Codec: codec, MhType: multihash.SHA2_256}.Sum(b)
		if err != nil {
			t.Fatal(err)
		}
		g.blocks[id.String()], g.file, g.root = b, g.root, id
		return id.Bytes()
	}
	node := func(data *unixfspb.Data, links ...*dagpb.PBLink) []byte {
		inner, err := proto.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		b, err := proto.Marshal(&dagpb.PBNode{Data: inner, Links: links})
		if err != nil {
			t.Fatal(err)
		}
		return put(cid.DagProtobuf, b)
	}
	file := node(&unixfspb.Data{Type: unixfspb.Data_File.Enum(), Blocksizes: []uint64{15, 16}},
		&dagpb.PBLink{Hash: put(cid.Raw, []byte(g.text[:15]))}, &dagpb.PBLink{Hash: put(cid.Raw, []byte(g.text[15:]))})
	node(&unixfspb.Data{Type: unixfspb.Data_Directory.Enum()}, &dagpb.PBLink{Hash: file, Name: proto.String("w b.bin")})
	return g
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := strings.TrimPrefix(req.URL.Path, "/ipfs/")
	b, ok := g.blocks[at]
	switch {
	case req.URL.RawQuery == "format=raw" && ok:
		_, _ = w.Write(b)
	case req.URL.RawQuery == "" && !g.blocksOnly && (at == g.root.String()+"/w b.bin" || at == g.file.String()):
		text := g.text
		if g.lies {
			text = strings.ToUpper(text)
		}
		_, _ = fmt.Fprint(w, text)
	default:
		http.NotFound(w, req)
	}
}

// A file of IPFS has its SHA-256 and the gateway's URL, which providers read. A directory, and a file that they could
// not read there, is stored on the peer.
func TestIPFS(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	site, c := serve(t, g.ServeHTTP)
	d := newDeskOf(t, nil, web.Config{})
	d.r.web, d.r.ipfs = c, ipfs.Client{Gateway: site.URL, HTTP: site.Client()}
	p := (&cli.App{Err: &d.said}).Progress()
	inside, direct := ipfs.Scheme+g.root.String()+"/w%20b.bin", ipfs.Scheme+g.file.String()
	for _, source := range []string{inside, direct} {
		b, err := d.r.resolve(t.Context(), source, p)
		if err != nil || b.CID != cidOf(g.text) || b.Size != int64(len(g.text)) || len(b.URLs) != 1 || b.Tree {
			t.Fatalf("%s: %+v, %v", source, b, err)
		}
		if id, _, err := c.Sum(t.Context(), b.URLs[0], nil); err != nil || id.String() != b.CID {
			t.Errorf("%s: a provider reads %v, %v", source, id, err)
		}
	}
	b, err := d.r.resolve(t.Context(), ipfs.Scheme+g.root.String(), p)
	if err != nil || len(b.URLs) > 0 || fmt.Sprint(d.tree(b)) != fmt.Sprint(map[string]string{"w b.bin": g.text}) {
		t.Errorf("a directory: %+v, %v", b, err)
	}
	g.blocksOnly = true
	b, err = d.r.resolve(t.Context(), inside, p)
	if err != nil || b.CID != cidOf(g.text) || len(b.URLs) > 0 {
		t.Errorf("of a gateway of blocks: %+v, %v", b, err)
	}
	id, err := blob.Parse(b.CID)
	if err != nil || !d.blobs.Has(id) {
		t.Errorf("it is not on the peer: %v", err)
	}
	for _, says := range []string{"input " + inside + " has sha256=", "is a directory", "providers cannot read " + inside} {
		if !strings.Contains(d.said.String(), says) {
			t.Errorf("%q is not in %q", says, d.said.String())
		}
	}
	j := spec(inside, "/in/w.bin", direct, "/in/again.bin", ipfs.Scheme+g.root.String(), "/dir")
	if err := j.Check(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"ipfs://nowhere", inside + "#sha256=" + strings.Repeat("0a", 32), "ipfs://" + g.root.String() + "/../x"} {
		if err := spec(bad, "/in/w.bin").Check(); !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestAttackGateway: a gateway sends other blocks to the client, or other bytes of the file to providers.
func TestAttackGateway(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	site, c := serve(t, g.ServeHTTP)
	r := resolver{web: c, ipfs: ipfs.Client{Gateway: site.URL, HTTP: site.Client()}}
	p := (&cli.App{Err: new(bytes.Buffer)}).Progress()
	source := ipfs.Scheme + g.file.String()
	g.lies = true
	b, err := r.resolve(t.Context(), source, p)
	if err != nil || b.CID != cidOf(g.text) {
		t.Fatalf("%+v, %v", b, err)
	}
	if id, _, err := c.Sum(t.Context(), b.URLs[0], nil); err != nil || id.String() == b.CID {
		t.Errorf("the gateway does not lie: %v, %v", id, err)
	}
	for id, good := range g.blocks {
		if strings.HasPrefix(string(good), "the first") {
			g.blocks[id] = bytes.ToUpper(good)
		}
	}
	if b, err := r.resolve(t.Context(), source, p); !errors.Is(err, ipfs.ErrBlock) || !strings.Contains(cli.Explain(err).Hint, "IPFS_GATEWAY") {
		t.Errorf("other blocks: %+v, %v", b, err)
	}
}
