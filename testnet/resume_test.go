package testnet_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/testnet"
	"github.com/starling-network/starling/testnet/localnet"
)

// resumed stops a network and resumes it.
func resumed(t *testing.T, n *testnet.Network) *testnet.Network {
	t.Helper()
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	again, err := testnet.Resume(t.Context(), testnet.Options{Dir: n.Dir, Binary: starling(t), Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := again.Stop(); err != nil {
			t.Error(err)
		}
	})
	return again
}

// jobAndResume has a job done, resumes the network, and has another done by the same peers, which know the first one.
func jobAndResume(t *testing.T, n *testnet.Network, pay job.Payment) (*testnet.Network, *api.Client) {
	t.Helper()
	c, err := n.Buyers()[0].Client()
	if err != nil {
		t.Fatal(err)
	}
	first := end(t, c, submit(t, c, 2, pay).ID)
	again := resumed(t, n)
	for i, p := range again.Peers {
		if old := n.Peers[i]; p.Key != old.Key || p.Owner != old.Owner || p.PID == old.PID {
			t.Errorf("%s: %s of %s in process %d, before %s of %s in %d",
				p.Name, p.Key, p.Owner, p.PID, old.Key, old.Owner, old.PID)
		}
	}
	if c, err = again.Buyers()[0].Client(); err != nil {
		t.Fatal(err)
	}
	j, err := api.GetJob.Call(t.Context(), c, api.ByID{ID: first.ID})
	if err != nil || j.State != record.Succeeded || j.Receipts != first.Receipts {
		t.Errorf("the job of before is %s with %d receipts, want %d: %v", j.Summary(), j.Receipts, first.Receipts, err)
	}
	if j := end(t, c, submit(t, c, 2, pay).ID); j.State != record.Succeeded {
		t.Errorf("after the resumption: %s", j.Summary())
	}
	return again, c
}

func TestResumeFree(t *testing.T) {
	t.Parallel()
	n, _ := jobAndResume(t, start(t, testnet.Options{Providers: 2, Buyers: 1, Free: true}), free)
	for dir, want := range map[string]string{n.Dir: "runs in " + n.Dir, t.TempDir(): "no homes of peers"} {
		_, err := testnet.Resume(t.Context(), testnet.Options{Dir: dir, Binary: starling(t)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A network on a chain that outlives it has its accounts and balances. Without that chain it is not resumed.
func TestResumePaid(t *testing.T) {
	t.Parallel()
	needChain(t)
	chain, err := localnet.Start(t.Context(), localnet.Config{SlotMillis: testnet.SlotMillis})
	if err != nil {
		t.Fatal(err)
	}
	defer chain.Close()
	n, c := jobAndResume(t, start(t, testnet.Options{Providers: 2, Buyers: 1, Chain: chain}), token)
	info, err := api.GetNode.Call(t.Context(), c, api.None{})
	if err != nil || info.Balance == 0 {
		t.Errorf("balance %d, %v", info.Balance, err)
	}
	if err := errors.Join(n.Stop(), chain.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = testnet.Stopped(t.Context(), n.Dir)
	if !errors.Is(err, testnet.ErrLost) || !strings.Contains(err.Error(), n.RPC) {
		t.Errorf("without its chain: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), starling(t), "testnet", "up", "--dir", n.Dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "hint: `starling testnet up --new --dir "+n.Dir) {
		t.Errorf("%v: %s", err, out)
	}
}
