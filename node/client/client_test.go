package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/client/home"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// noMarket is that of an entry peer without offers.
type noMarket struct{ entry.Market }

func (noMarket) Peers() int { return 7 }

// entryOf is an entry peer that shows a genesis.
func entryOf(t *testing.T, i int, g market.Genesis) *p2p.Host {
	t.Helper()
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(i), Network: g.Tag(), NAT: p2p.NAT{Serve: true}})
	s, err := entry.Serve(h, entry.Config{Genesis: g, Log: p2ptest.Quiet(), Market: noMarket{},
		Slot: func() (market.Slot, bool) { return 1000, true }, Others: func() []peer.AddrInfo { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return h
}

// Without a genesis the first use believes the one that it is shown, and pins it for good; with one it does not.
func TestNetworkIsPinned(t *testing.T) {
	t.Parallel()
	genesis := market.Genesis{
		Network: "client", Chain: sign.Sum([]byte("chain")), Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10, Simulated: true,
	}
	other := genesis
	other.IntervalSlots = 20
	key := sign.NewPrivate([32]byte{91})
	foreign, honest := entryOf(t, 1, other), entryOf(t, 2, genesis)
	for _, c := range []struct {
		pin  string
		from *p2p.Host
		want error
	}{
		{"", foreign, nil}, {genesis.Hash().String(), foreign, ErrOtherNetwork}, {genesis.Hash().String(), honest, nil}, {"nonsense", honest, ErrConfig},
	} {
		cfg := Config{Home: t.TempDir(), Genesis: c.pin, Log: p2ptest.Quiet()}
		g, err := network(t.Context(), cfg, hostConfig(cfg, key, nil), []peer.AddrInfo{c.from.AddrInfo()})
		if !errors.Is(err, c.want) {
			t.Errorf("pin %.8q: %v, want %v", c.pin, err, c.want)
		}
		if c.want != nil {
			continue
		}
		cfg.Genesis = ""
		again, err := network(t.Context(), cfg, hostConfig(cfg, key, nil), nil)
		if err != nil || again != g {
			t.Errorf("what was pinned is not found again: %v", err)
		}
		cfg.Genesis = sign.Sum([]byte("another")).String()
		if _, err := network(t.Context(), cfg, hostConfig(cfg, key, nil), nil); !errors.Is(err, ErrConfig) {
			t.Errorf("another genesis than the pinned one: %v", err)
		}
	}
}

// A client that knows neither a network nor a peer has no way to one.
func TestOpenWithoutPeers(t *testing.T) {
	t.Parallel()
	if _, err := Open(t.Context(), Config{Home: t.TempDir(), Log: p2ptest.Quiet()}); !errors.Is(err, ErrConfig) {
		t.Errorf("no peer and no network: %v", err)
	}
}

// away is an address of an entry peer that does not run.
const away = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWGUxwk7hsXYs41Ch4tb6yTamW7sSDtQCJnSs65FSn9b53"

// offline opens a client that knows its network and reaches no entry peer.
func offline(t *testing.T, dir string) *Client {
	t.Helper()
	c, err := Open(t.Context(), Config{Home: dir, Peers: []string{away}, Log: p2ptest.Quiet(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newHome is a directory with a pinned network, which is free.
func newHome(t *testing.T) (string, market.Genesis) {
	t.Helper()
	dir := t.TempDir()
	g := market.Genesis{Network: "client", Chain: sign.Hash{1}, Symbol: "FREE", Free: true, SlotMillis: 400, IntervalSlots: 150, Simulated: true}
	if err := home.KeepGenesis(dir, g); err != nil {
		t.Fatal(err)
	}
	return dir, g
}

// A client whose entry peers are away opens all the same, so that the state of its jobs can be read. Its home is its
// own until it is closed, and has the same key afterwards.
func TestOpenOffline(t *testing.T) {
	t.Parallel()
	dir, g := newHome(t)
	c := offline(t, dir)
	if !c.Created() || c.Wallet().IsZero() || c.Genesis() != g || len(c.Entries()) != 0 || len(c.Jobs()) != 0 || c.Ready(t.Context(), 0) {
		t.Errorf("created %t, wallet %s, %+v, entries %v, jobs %v", c.Created(), c.Wallet(), c.Genesis(), c.Entries(), c.Jobs())
	}
	if n := c.Status(t.Context()); n.Owner != c.Wallet() || len(n.Entries) != 0 || n.Genesis != g || n.Version != "test" {
		t.Errorf("status %+v", n)
	}
	if _, err := Open(t.Context(), Config{Home: dir, Log: p2ptest.Quiet()}); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	if c.UntilIdle(t.Context(), 0) {
		t.Error("a client without jobs is used")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if !c.UntilIdle(ctx, 0) {
		t.Error("idle, though nobody waits any more")
	}
	wallet := c.Wallet()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	c = offline(t, dir)
	if c.Created() || c.Wallet() != wallet {
		t.Errorf("opened again: created %t, wallet %s, was %s", c.Created(), c.Wallet(), wallet)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A job that is not there is the same error in every call.
func TestUnknownJob(t *testing.T) {
	t.Parallel()
	dir, _ := newHome(t)
	c := offline(t, dir)
	defer c.Close()
	for name, call := range map[string]func() error{
		"Job":      func() error { _, err := c.Job("none"); return err },
		"Wait":     func() error { _, err := c.Wait(t.Context(), "none"); return err },
		"Stop":     func() error { return c.Stop(t.Context(), "none") },
		"Why":      func() error { _, err := c.Why("none"); return err },
		"Receipts": func() error { _, err := c.Receipts(t.Context(), "none"); return err },
		"Logs":     func() error { return c.Logs(t.Context(), "none", 0, true, io.Discard, io.Discard) },
	} {
		if err := call(); !errors.Is(err, buyer.ErrNoJob) {
			t.Errorf("%s: %v, want %v", name, err, buyer.ErrNoJob)
		}
	}
	if offers, err := c.Quote(t.Context(), "cpu"); err != nil || len(offers) != 0 {
		t.Errorf("%v, %v", offers, err)
	}
	if _, err := c.Quote(t.Context(), "no class"); err == nil {
		t.Error("a class that is none")
	}
}

// Files and directories of a job are taken into the client's store, each once, and can be read there.
func TestUpload(t *testing.T) {
	t.Parallel()
	dir, _ := newHome(t)
	c := offline(t, dir)
	defer c.Close()
	files := t.TempDir()
	module, data := filepath.Join(files, "app.wasm"), filepath.Join(files, "data")
	if err := errors.Join(os.WriteFile(module, []byte("the module"), 0o600), os.Mkdir(data, 0o700),
		os.WriteFile(filepath.Join(data, "f"), []byte("of a directory"), 0o600)); err != nil {
		t.Fatal(err)
	}
	kept, err := c.Put(t.Context(), strings.NewReader("kept"))
	if err != nil || kept.Size != 4 {
		t.Fatalf("%+v, %v", kept, err)
	}
	spec := job.Job{Name: "upload", Runtime: "wasm", Module: module, Count: 1, Resources: job.Resources{Class: "cpu", Units: 1},
		Timeouts: job.Timeouts{Queue: time.Minute, Run: time.Minute}, Payment: job.Payment{Free: true},
		Inputs: []job.Input{{Source: data, Path: "/in/data"}, {Source: job.CIDScheme + kept.CID, Path: "/in/kept"}}}
	up, err := c.Upload(t.Context(), spec)
	if err != nil || !up.Uploaded() || spec.Uploaded() {
		t.Fatalf("%+v, %v", up, err)
	}
	again, err := c.Put(t.Context(), strings.NewReader("the module"))
	if err != nil {
		t.Fatal(err)
	}
	for cid, want := range map[string]string{again.CID: "the module", kept.CID: "kept"} {
		r, err := c.Get(cid)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if r.Close(); err != nil || !bytes.Contains(b, []byte(want)) {
			t.Errorf("%s: %q, want %q, %v", cid, b, want, err)
		}
	}
	spec.Module = filepath.Join(files, "none.wasm")
	if _, err := c.Upload(t.Context(), spec); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "taking in "+spec.Module) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := c.Submit(t.Context(), spec); !errors.Is(err, os.ErrNotExist) || len(c.Jobs()) != 0 {
		t.Errorf("submitted: %v, %v", c.Jobs(), err)
	}
	for _, cid := range []string{"nonsense", "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"} {
		if r, err := c.Get(cid); err == nil {
			r.Close()
			t.Errorf("%s is in the store", cid)
		}
	}
}
