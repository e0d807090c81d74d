package hooks_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/executor/executortest"
	"github.com/starling-network/starling/node/executor/hooks"
	"github.com/starling-network/starling/node/files"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime/runtimetest/guest"
	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// idle is a user without jobs.
type idle struct{}

func (idle) Holds(string, cid.Cid) bool { return false }
func (idle) Uses(cid.Cid) bool          { return false }

// Programs read an input by its URL, which is fetched once for all of them. One with other bytes starts no program, and
// its buyer learns why.
func TestInputsByURL(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "weights of "+req.URL.Path)
	}))
	site.Config.ErrorLog = log.New(io.Discard, "", 0)
	site.StartTLS()
	t.Cleanup(site.Close)
	roots := x509.NewCertPool()
	roots.AddCert(site.Certificate())
	read := make(chan string, 3)
	r := newRig(t, map[string]guest.Program{"cat": func(p guest.Process) int {
		b, err := guest.ReadFile(p, "/data/w.bin", 100)
		read <- fmt.Sprint(string(b), err)
		return 0
	}})
	module := r.Module("cat")
	program, err := workload.CID(module)
	if err != nil {
		t.Fatal(err)
	}
	reader := func(hosts ...string) {
		t.Helper()
		client, err := web.New(web.Config{Hosts: hosts, Roots: roots})
		if err != nil {
			t.Fatal(err)
		}
		room := files.New(files.Config{
			Host: p2ptest.Loopback(t, 1)[0], Blobs: r.Blobs, Network: p2ptest.Network, Web: client, Log: r.Log,
		})
		room.Serve(idle{})
		room.Share(executortest.Buyer, program)
		r.hooks.Files = room
		r.Stop()
		r.Hooks = hooks.All(r.hooks, noNetworks{}, nil)
		r.Start()
	}
	reader(strings.TrimPrefix(site.URL, web.Scheme))
	input := func(content, url string) *nodepb.Workload {
		b := &nodepb.Blob{Cid: blob.Sum([]byte(content)).Bytes(), Urls: []string{url}, Remote: true}
		return &nodepb.Workload{Runtime: "wasm", Module: module, Inputs: []*nodepb.Input{{Blob: b, Path: "/data/w.bin"}}}
	}
	for rank := range 3 {
		s := r.Await(r.Must(market.LeaseID{byte(rank)}, 1, input("weights of /w.bin", site.URL+"/w.bin")))
		if s.State != nodepb.ExecState_EXEC_STATE_EXITED {
			t.Fatalf("rank %d: %v", rank, s)
		}
		if text := <-read; text != "weights of /w.bin<nil>" {
			t.Errorf("the program read %q", text)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
	s := r.Await(r.Must(market.LeaseID{10}, 1, input("others", site.URL+"/w.bin?signature=abc")))
	if s.Reason != protocol.ReasonInput || !strings.Contains(s.Message, site.URL+"/w.bin: input not found at its URL: SHA-256 mismatch") ||
		strings.Contains(s.Message, "signature") {
		t.Errorf("wrong bytes: %v", s)
	}
	reader() // a server of no operator's
	s = r.Await(r.Must(market.LeaseID{11}, 1, input("another", site.URL+"/w.bin")))
	if s.Reason != protocol.ReasonStart || !strings.Contains(s.Message, "must be on the internet") {
		t.Errorf("an address on loopback: %v", s)
	}
}
