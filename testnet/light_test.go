package testnet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/client"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/testnet"
)

// light opens a light client in this process that knows one address of a network's first buyer, its entry peer, and funds it. It
// returns when the client has two entry peers and has found both providers.
func light(t *testing.T, n *testnet.Network) (*client.Client, *testnet.Peer, api.NodeInfo) {
	t.Helper()
	entry := n.Buyers()[0]
	c, err := entry.Client()
	if err != nil {
		t.Fatal(err)
	}
	info, err := api.GetNode.Call(t.Context(), c, api.None{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := client.Config{Home: filepath.Join(t.TempDir(), "client"), Peers: info.Addrs[:1], Genesis: n.Genesis.Hash().String(), Cache: t.TempDir(), Log: p2ptest.Quiet()}
	l, err := client.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	if !l.Created() || l.Genesis() != n.Genesis {
		t.Errorf("created %v, network %s", l.Created(), l.Genesis().Tag())
	}
	if err := n.Chain().FundKey(t.Context(), l.Wallet(), 10_000_000, 1_000_000_000); err != nil {
		t.Fatal(err)
	}
	found := func() string { return fmt.Sprint("entry peers ", l.Entries()) }
	until(t, "two entries are connected", found, func() bool { return len(l.Entries()) == 2 })
	until(t, "both providers are found", found, func() bool {
		found, err := l.Quote(t.Context(), "cpu")
		return err == nil && len(found) == 2 && found[0].Fresh(time.Now()) && found[1].Fresh(time.Now())
	})
	return l, entry, info
}

// TestLightClient: a light client in this process knows one address of a network of real processes, has a job done and
// pays for it on the chain, through its entry peers alone; the one it uses is killed in the middle of the job.
func TestLightClient(t *testing.T) {
	t.Parallel()
	n := start(t, testnet.Options{Providers: 2, Buyers: 3})
	program := filepath.Join(t.TempDir(), "hash.wasm")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/starling-network/starling/testnet/jobs/hash")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the job: %v\n%s", err, out)
	}
	l, entry, info := light(t, n)
	j, err := l.Submit(t.Context(), job.Job{
		Name: "hash", Runtime: "wasm", Module: program, Args: []string{"8"}, Count: 2, Resources: job.Resources{Class: "cpu", Units: 1},
		Restart: job.Restart{Max: 2}, Timeouts: job.Timeouts{Queue: 20 * time.Second, Run: 2 * time.Minute},
		Payment: job.Payment{MaxPrice: 500_000, Budget: 5_000_000, Decimals: 6},
	})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the job runs", j.Summary, func() bool {
		now, err := l.Job(j.ID)
		return err == nil && !slices.ContainsFunc(now.Ranks, func(r record.Rank) bool { return r.State != record.RankRunning })
	})
	if err := entry.Kill(); err != nil {
		t.Fatal(err)
	}
	if j, err = l.Wait(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	if j.State != record.Succeeded || j.Paid+j.Held != j.Owed || j.Owed == 0 || len(j.Transactions) == 0 {
		t.Fatalf("%s: owed %d, paid %d in %v", j.Summary(), j.Owed, j.Paid, j.Transactions)
	}
	if e := l.Entries(); slices.ContainsFunc(e, func(id peer.ID) bool { return id.String() == info.Peer }) {
		t.Errorf("the killed entry is among %v", e)
	}
	for _, p := range l.Node().Status().Peers() {
		for _, conn := range p.Conns {
			if conn.Via == "" && !slices.ContainsFunc(l.Entries(), func(id peer.ID) bool { return id.String() == p.Peer }) {
				t.Errorf("connected to %s, which is no entry, by %s", p.Peer, conn.Addr)
			}
		}
	}
	for rank := range j.Ranks {
		var out strings.Builder
		if err := l.Logs(t.Context(), j.ID, rank, false, &out, os.Stderr); err != nil || !strings.Contains(out.String(), "second 8:") {
			t.Errorf("log of rank %d: %q (%v)", rank, out.String(), err)
		}
	}
}

// TestLightEscrow: a light client fills and closes an escrow through its entry peers, as a peer does with its own endpoint.
func TestLightEscrow(t *testing.T) {
	t.Parallel()
	n := start(t, testnet.Options{Providers: 2, Buyers: 2})
	l, _, _ := light(t, n)
	program := filepath.Join(t.TempDir(), "hello.wasm")
	if err := os.WriteFile(program, hello, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := job.Job{
		Name: "hello", Runtime: "wasm", Module: program, Count: 2, Resources: job.Resources{Class: "cpu", Units: 1},
		Restart: job.Restart{Max: 1}, Timeouts: job.Timeouts{Queue: 20 * time.Second, Run: time.Minute},
		Payment: job.Payment{MaxPrice: 500_000, Budget: 1_000_000, Decimals: 6},
	}
	run := func() (record.Job, error) {
		j, err := l.Submit(t.Context(), spec)
		if err != nil {
			return j, err
		}
		return l.Wait(t.Context(), j.ID)
	}
	j, err := run()
	for try := 1; err == nil && j.Owed == 0 && try < 5; try++ {
		j, err = run() // a lease is void if its money is on chain too late, as on a busy machine
	}
	if err != nil {
		t.Fatal(err)
	}
	if j.State != record.Succeeded || j.Paid+j.Held != j.Owed || j.Owed == 0 || len(j.Escrows) != 1 {
		t.Fatalf("%s: owed %d, paid %d; %+v", j.Summary(), j.Owed, j.Paid, j.Escrows)
	}
	until(t, "the escrow is closed", func() string { return fmt.Sprintf("%+v", j.Escrows) }, func() bool {
		j, err = l.Job(j.ID)
		return err == nil && j.Escrows[0].Closed
	})
	if e := j.Escrows[0]; e.Paid != j.Paid || e.Refunded != e.Deposited-e.Paid || e.Fees == 0 {
		t.Errorf("the job paid %d, its escrow %+v", j.Paid, e)
	}
}
